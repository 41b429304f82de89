package publish

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The two classes of errors of a target. The code that opens the target wraps its
// errors in one of them. If an error has neither class, the relay does not know
// whether the record or the target is at fault; the attempt then counts against the
// record.
var (
	// ErrUnavailable: the target does not answer now, and may later. The relay
	// retries the record for as long as the run lasts.
	ErrUnavailable = errors.New("target is not available")
	// ErrUnacceptable: the target will never accept this record. The record becomes a
	// dead letter at once.
	ErrUnacceptable = errors.New("target does not accept the record")
)

// A Policy sets how many records are published at a time, how often each is tried,
// and how soon an acknowledgement is saved. A field of zero selects its default, and
// the zero Policy publishes one record at a time.
type Policy struct {
	// Workers is the number of goroutines that publish. Each has a queue, and all
	// records of a stream pass through the same one. Default 1.
	Workers int
	// Batch is the largest number of records that one call of the target publishes. The
	// records come from one queue, and have one topic unless the target is a Batcher.
	// Default 1.
	Batch int
	// InFlight is the largest number of records that were read and are neither
	// acknowledged nor dead letters. Default 1,024.
	InFlight int
	// Bytes is the largest size, in bytes, of the data and metadata of the records in
	// flight, which InFlight counts. A larger record is published alone. Default 64
	// MiB.
	Bytes int

	// Tries is the number of attempts at a record after which it becomes a dead
	// letter. Attempts with an ErrUnavailable do not count. Default 5.
	Tries int
	// MaxConsecutive is the number of dead letters in a row, without an
	// acknowledgement between them, after which the next one ends the run: the target
	// is at fault. Default 10.
	MaxConsecutive int
	// MaxDeadLetters is the number of dead letters of a consumer after which the next
	// one ends the run. Default 1,000.
	MaxDeadLetters int

	// MinBackoff is the delay before the second attempt. The delay doubles before each
	// later attempt up to MaxBackoff. A jitter of up to half of the delay is added or
	// subtracted. Defaults 100 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// SaveInterval is the longest time between an acknowledgement and the checkpoint
	// that contains it. A kill repeats at most the records of this time. Default 1 s.
	SaveInterval time.Duration
}

// withDefaults returns p with the default in place of each zero.
func (p Policy) withDefaults() Policy {
	p.Workers, p.Batch = cmp.Or(p.Workers, 1), cmp.Or(p.Batch, 1)
	p.InFlight, p.Bytes = cmp.Or(p.InFlight, 1024), cmp.Or(p.Bytes, 64<<20)
	p.Tries, p.MaxConsecutive, p.MaxDeadLetters = cmp.Or(p.Tries, 5), cmp.Or(p.MaxConsecutive, 10), cmp.Or(p.MaxDeadLetters, 1000)
	p.MinBackoff, p.MaxBackoff = cmp.Or(p.MinBackoff, 100*time.Millisecond), cmp.Or(p.MaxBackoff, 30*time.Second)
	p.SaveInterval = cmp.Or(p.SaveInterval, time.Second)
	return p
}

// newBackoff returns the delays between the attempts at one batch. It is used by one
// goroutine and has no end of its own.
func (p Policy) newBackoff() *backoff.ExponentialBackOff {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval, delays.Multiplier = min(p.MinBackoff, p.MaxBackoff), p.MaxBackoff, 2
	return delays
}

// sleep waits for d, or returns the cause of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
