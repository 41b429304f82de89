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

// noSum stands in a seal for a table whose sum is not known.
const noSum = "-"

// summedBlocks is how many blocks of records a table's sum covers at most.
const summedBlocks = 16

// tableSum returns a CRC-32C by which a table is told from another one of the same
// name and length, without reading it: over the trailers, which hold sums, of its
// first and its last block of records and of some between them, spread evenly, and
// of the blocks behind the records. It returns noSum for a table that cannot be
// read there.
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

// openTable opens a table to read its blocks.
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
