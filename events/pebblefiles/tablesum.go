package pebblefiles

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// noSum stands in a seal for the sum of a file whose sum is not known.
const noSum = "-"

// summedBlocks bounds the blocks of records that the checksum of a table covers, so
// that closing a large database reads little of it.
const summedBlocks = 16

// tableSum returns a CRC-32C that distinguishes a table from another table with the same
// name and length, without reading all of it. A block ends with a trailer that holds its
// checksum. tableSum covers the trailers of the first and the last block of records, of
// some blocks between them, and of the blocks of metadata. If these cannot be read, it
// returns noSum.
func tableSum(storage vfs.FS, path string) string {
	ctx := context.Background()
	readable, reader, err := openTable(ctx, storage, path)
	if err != nil {
		return noSum
	}
	defer func() { _ = reader.Close() }() // nothing was written
	layout, err := reader.Layout()
	if err != nil {
		return noSum
	}
	handles := append(append([]block.Handle{}, layout.Index...), layout.TopIndex, layout.Properties, layout.MetaIndex)
	count := min(len(layout.Data), summedBlocks)
	for i := range count {
		at := 0
		if i > 0 {
			at = i * (len(layout.Data) - 1) / (count - 1)
		}
		handles = append(handles, layout.Data[at].Handle)
	}
	sum, trailer := uint32(0), make([]byte, block.TrailerLen)
	for _, h := range handles {
		if h.Length == 0 {
			continue
		}
		if err := readable.ReadAt(ctx, trailer, int64(h.Offset+h.Length)); err != nil {
			return noSum
		}
		sum = crc32.Update(sum, castagnoli, trailer)
	}
	return fmt.Sprintf("%08x", sum)
}

// openTable opens a table for reading its blocks. The caller closes the reader.
func openTable(ctx context.Context, storage vfs.FS, path string) (objstorage.Readable, *sstable.Reader, error) {
	file, err := storage.Open(path)
	if err != nil {
		return nil, nil, err
	}
	readable, err := objstorageprovider.NewFileReadable(file, storage, objstorageprovider.NewReadaheadConfig(), path)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	o := &pebble.Options{}
	o.EnsureDefaults()
	reader, err := sstable.NewReader(ctx, readable, o.MakeReaderOptions())
	if err != nil {
		return nil, nil, errors.Join(err, readable.Close())
	}
	return readable, reader, nil
}
