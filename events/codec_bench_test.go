package events

import (
	"testing"
	"time"
)

// BenchmarkCodec reports the speed of writing and of reading the events of a
// call as multiples of that of encoding/json, in the same run.
func BenchmarkCodec(b *testing.B) {
	var drafts []Draft
	var entries []Entry
	for _, e := range sampleEvents() {
		if settled, ok := e.(CallSettled); ok {
			settled.Content, settled.Progress = settled.Content[:1], nil
			e = settled
		}
		switch e.(type) {
		case TurnMaterialized, ReplyReceived, CallStarted, CallSettled:
			d := draftOf(e)
			r, err := Encode(d)
			if err != nil {
				b.Fatal(err)
			}
			drafts, entries = append(drafts, d), append(entries, Entry{Record: r, Stream: "session-x", Revision: 1})
		}
	}
	const rounds = 500
	timed := func(work func(i int) error) float64 {
		began := time.Now()
		for range rounds {
			for i := range drafts {
				if err := work(i); err != nil {
					b.Fatal(err)
				}
			}
		}
		return time.Since(began).Seconds()
	}
	var slowWrite, write, slowRead, read float64
	d := &decoder{}
	for b.Loop() {
		slowWrite += timed(func(i int) error {
			_, err := marshalJSON(drafts[i].Event)
			return err
		})
		write += timed(func(i int) error { _, err := Encode(drafts[i]); return err })
		slowRead += timed(func(i int) error {
			_, err := decodeWithStdlib(entries[i].Kind, entries[i].Data)
			return err
		})
		read += timed(func(i int) error { _, err := d.lent(entries[i]); return err })
	}
	b.ReportMetric(slowWrite/write, "encode/json")
	b.ReportMetric(slowRead/read, "decode/json")
}
