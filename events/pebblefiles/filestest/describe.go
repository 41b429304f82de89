// Package filestest damages the files of a database in tests. A [PowerCutter] cuts the
// power of a store and logs which cut lost data. A [LyingSyncFS] ignores syncs.
// [Describe] names a position in a file, for tests that damage a file and count the
// outcomes by position.
package filestest

import (
	"cmp"
	"context"
	"encoding/binary"
	"path"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// LastRecord ends the text of Describe if the offset is in the last record of a log. A
// power cut may tear that record, so a store cannot distinguish a flipped bit in it from
// a power cut.
const LastRecord = " of the last record"

// Describe returns the kind of a file and the part of the file at the offset that the
// caller passes as at. The part is a part of a chunk in a log or a manifest, and a part
// of a block in a table. For an OPTIONS file, a marker or any other file, Describe
// returns a text without a part: OPTIONS, marker or the name of the file.
func Describe(name string, content []byte, at int) string {
	base := path.Base(name)
	switch kind := pebblefiles.KindOf(base); kind {
	case pebblefiles.Log, pebblefiles.Manifest:
		return string(kind) + ", " + inLog(base, content, at)
	case pebblefiles.Table:
		return string(kind) + ", " + inTable(content, at)
	}
	switch {
	case strings.HasPrefix(base, "OPTIONS-"):
		return "OPTIONS"
	case strings.HasPrefix(base, "marker."):
		return "marker"
	}
	return base
}

// The layout of blocks and chunks is drawn in package pebblefiles.
const (
	blockLen  = 32 << 10
	lengthAt  = 4
	numberAt  = 7
	fullChunk = 1
	lastChunk = 0
)

// inLog describes an offset in a log or a manifest.
func inLog(base string, content []byte, at int) string {
	header, number := 7, uint64(0)
	if pebblefiles.KindOf(base) == pebblefiles.Log {
		header = 19
		number, _ = strconv.ParseUint(strings.TrimSuffix(base, ".log"), 10, 32)
	}
	place, last, begun := "behind the end", 0, 0
	for p := 0; p+header <= len(content); {
		if rest := blockLen - p%blockLen; rest < header {
			if at >= p && at < p+rest {
				place = "padding"
			}
			p += rest
			continue
		}
		length := int(binary.LittleEndian.Uint16(content[p+lengthAt:]))
		encoding := content[p+6]
		if encoding == 0 || header > 7 && uint64(binary.LittleEndian.Uint32(content[p+numberAt:])) != number {
			break
		}
		if encoding%4 == fullChunk || encoding%4 == fullChunk+1 {
			begun = p
		}
		if encoding%4 == fullChunk || encoding%4 == lastChunk {
			last = begun
		}
		switch {
		case at >= p+lengthAt && at < p+lengthAt+2:
			place = "length"
		case at >= p && at < p+header:
			place = "header"
		case at >= p+header && at < p+header+length:
			place = "payload"
		}
		p += header + length
	}
	if at >= last && place != "behind the end" {
		place += LastRecord
	}
	return place
}

// inTable describes an offset in a table.
func inTable(content []byte, at int) string {
	storage := vfs.NewMem()
	file, err := storage.Create("table", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err.Error()
	}
	_, err = file.Write(append([]byte{}, content...))
	if err = cmp.Or(err, file.Close()); err != nil {
		return err.Error()
	}
	if file, err = storage.Open("table"); err != nil {
		return err.Error()
	}
	readable, err := objstorageprovider.NewFileReadable(file, storage, objstorageprovider.NewReadaheadConfig(), "table")
	if err != nil {
		return err.Error()
	}
	o := &pebble.Options{}
	o.EnsureDefaults()
	reader, err := sstable.NewReader(context.Background(), readable, o.MakeReaderOptions())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = reader.Close() }() // nothing was written
	layout, err := reader.Layout()
	if err != nil {
		return err.Error()
	}
	within := func(name string, b block.Handle) string {
		begin := int(b.Offset)
		switch end := begin + int(b.Length); {
		case b.Length == 0 || at < begin || at >= end+block.TrailerLen:
			return ""
		case at >= end:
			return name + ", trailer"
		}
		return name
	}
	for _, b := range layout.Data {
		if place := within("records", b.Handle); place != "" {
			return place
		}
	}
	for _, b := range layout.Index {
		if place := within("index", b); place != "" {
			return place
		}
	}
	for _, b := range []block.Handle{layout.TopIndex, layout.Properties, layout.MetaIndex} {
		if place := within("properties", b); place != "" {
			return place
		}
	}
	return "footer"
}
