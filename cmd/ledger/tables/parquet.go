package tables

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// parquetMagic begins and ends a Parquet file.
const parquetMagic = "PAR1"

// A parquetFile makes a Parquet file of row groups, each of which is encoded alone. So an
// interrupted file can be continued with what its row groups recorded.
type parquetFile[T any] struct {
	schema *parquet.Schema
	buffer bytes.Buffer // of the row group that is encoded
	groups []format.RowGroup
	bytes  int64 // of the file so far
	rows   int64
}

// newParquetFile returns an empty file.
func newParquetFile[T any]() *parquetFile[T] {
	return &parquetFile[T]{schema: parquet.SchemaOf(*new(T))}
}

// A groupState is what a file needs of a row group that is written.
type groupState struct {
	Group []byte `json:"group"` // format.RowGroup in the compact protocol of Thrift
	Bytes int64  `json:"bytes"` // of the file behind it
}

// resume adds a row group that is written already.
func (f *parquetFile[T]) resume(s groupState) error {
	var group format.RowGroup
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), s.Group, &group); err != nil {
		return err
	}
	f.groups, f.bytes, f.rows = append(f.groups, group), s.Bytes, f.rows+group.NumRows
	return nil
}

// encode encodes rows as a file of one row group and returns its metadata. Each has a writer of
// its own, because one that is reset leaves out the names of the columns.
func (f *parquetFile[T]) encode(rows []T) (*format.FileMetaData, error) {
	f.buffer.Reset()
	w := parquet.NewGenericWriter[T](&f.buffer, f.schema, parquet.CreatedBy("settlement-ledger", "", ""), parquet.MaxRowsPerRowGroup(1<<40))
	if _, err := w.Write(rows); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return w.File().Metadata(), nil
}

// group writes rows as a row group. The pages are those of a file of one row group, whose
// offsets become those of this file. The index of pages, which has offsets too, is left out:
// the statistics of each column are in the row group.
func (f *parquetFile[T]) group(to io.Writer, rows []T) (groupState, error) {
	meta, err := f.encode(rows)
	if err != nil {
		return groupState{}, err
	}
	if f.bytes == 0 {
		if _, err := io.WriteString(to, parquetMagic); err != nil {
			return groupState{}, err
		}
		f.bytes = int64(len(parquetMagic))
	}
	group := meta.RowGroups[0]
	end, moved := int64(f.buffer.Len()), f.bytes-int64(len(parquetMagic))
	for i := range group.Columns {
		c := &group.Columns[i]
		end = min(end, c.ColumnIndexOffset, c.OffsetIndexOffset)
		c.ColumnIndexOffset, c.ColumnIndexLength, c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0, 0, 0
		c.MetaData.DataPageOffset += moved
		if c.MetaData.DictionaryPageOffset != 0 {
			c.MetaData.DictionaryPageOffset += moved
		}
		if c.FileOffset != 0 {
			c.FileOffset += moved
		}
	}
	group.FileOffset += moved
	group.Ordinal = int16(len(f.groups))
	pages := f.buffer.Bytes()[len(parquetMagic):end]
	if _, err := to.Write(pages); err != nil {
		return groupState{}, err
	}
	text, err := thrift.Marshal(new(thrift.CompactProtocol), &group)
	if err != nil {
		return groupState{}, err
	}
	s := groupState{text, f.bytes + int64(len(pages))}
	return s, f.resume(s)
}

// finish writes the end of the file, with keys and values of metadata in order.
func (f *parquetFile[T]) finish(to io.Writer, metadata [][2]string) error {
	empty, err := f.encode(nil) // it has the schema
	if err != nil {
		return err
	}
	meta := *empty
	meta.NumRows, meta.RowGroups = f.rows, f.groups
	meta.KeyValueMetadata = nil
	for _, pair := range metadata {
		meta.KeyValueMetadata = append(meta.KeyValueMetadata, format.KeyValue{Key: pair[0], Value: pair[1]})
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	if err != nil {
		return err
	}
	if f.bytes == 0 {
		footer = append([]byte(parquetMagic), footer...)
	}
	length := len(footer)
	if f.bytes == 0 {
		length -= len(parquetMagic)
	}
	footer = binary.LittleEndian.AppendUint32(footer, uint32(length))
	_, err = to.Write(append(footer, parquetMagic...))
	return err
}
