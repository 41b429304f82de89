package storecopy

import (
	"context"
	"errors"

	"github.com/settlement-ledger/ledger/events"
)

// The limits of one append of a copy.
const (
	maxBatchRecords = 256
	maxBatchBytes   = 512 << 10 // below the limit of every supported server
)

// A batch holds consecutive records of one stream that one append adds.
type batch struct {
	to      events.Store
	stream  events.Stream
	after   events.Revision // length of the stream before the batch
	records []events.Record // copies; they do not alias lent memory
	bytes   int             // size of the batch
}

// add adds a record to the batch. If the record does not follow the last record of the
// batch in the same stream, or the batch is full, add first flushes the batch.
func (r *batch) add(ctx context.Context, e events.Entry) error {
	bytes := len(e.Data) + len(e.Metadata) + 2*len(e.Kind)
	follows := e.Stream == r.stream && e.Revision == r.after+events.Revision(len(r.records))+1
	if len(r.records) > 0 && (!follows || len(r.records) >= maxBatchRecords || r.bytes+bytes > maxBatchBytes) {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	if len(r.records) == 0 {
		r.stream, r.after = e.Stream, e.Revision-1
	}
	// The store owns the bytes of a lent entry, so keep a copy.
	e.Data, e.Metadata = append([]byte(nil), e.Data...), append([]byte(nil), e.Metadata...)
	r.records, r.bytes = append(r.records, e.Record), r.bytes+bytes
	return nil
}

// flush appends the batch and empties it.
func (r *batch) flush(ctx context.Context) error {
	if len(r.records) == 0 {
		return nil
	}
	err := r.append(ctx, r.after, r.records)
	r.records, r.bytes = nil, 0
	return err
}

// append appends records to the target. If the target rejects them as too large, append
// splits them into two halves and appends each, because only the target knows its limit.
func (r *batch) append(ctx context.Context, after events.Revision, records []events.Record) error {
	err := r.to.Append(ctx, r.stream, after, records...)
	// A single record that is too large cannot be divided.
	half := len(records) / 2
	if half == 0 || !errors.Is(err, events.ErrTooLarge) {
		return err
	}
	if err := r.append(ctx, after, records[:half]); err != nil {
		return err
	}
	return r.append(ctx, after+events.Revision(half), records[half:])
}
