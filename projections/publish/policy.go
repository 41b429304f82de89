package publish

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// What an error of a publisher says of the record, in the words of who opened
// the publisher. An error that is neither leaves it open whether the record or
// the target is at fault.
var (
	// ErrUnavailable: the target does not answer, and another time it may. The
	// record is tried again for as long as the run lasts.
	ErrUnavailable = errors.New("target is not available")
	// ErrUnacceptable: the target will never take this record. It is set aside
	// at once.
	ErrUnacceptable = errors.New("target does not accept the record")
)

// A Policy says how records are published. The zero Policy publishes one
// record at a time.
type Policy struct {
	Workers  int // streams handed over side by side; 0: 1
	Batch    int // most records of one queue handed over at once, all of one topic unless the target is a Batcher; 0: 1
	InFlight int // most records read and not acknowledged; 0: 1024
	Bytes    int // most bytes of these, or one record; 0: 64 MiB

	Tries          int // attempts at a record before it is set aside; 0: 5
	MaxConsecutive int // records set aside without one acknowledged between them, from which the run ends; 0: 10
	MaxDeadLetters int // records of a consumer set aside at one time, from which the run ends; 0: 1000

	// The wait before the second attempt is MinBackoff, and doubles before each later one,
	// up to MaxBackoff. Up to half of each is added or left out at random.
	MinBackoff, MaxBackoff time.Duration // 0: 100 ms and 30 s
	SaveInterval           time.Duration // most time that an acknowledgement is not in the checkpoint; 0: 1 s
}

// withDefaults returns p with the defaults in place of zeros.
func (p Policy) withDefaults() Policy {
	p.Workers, p.Batch = cmp.Or(p.Workers, 1), cmp.Or(p.Batch, 1)
	p.InFlight, p.Bytes = cmp.Or(p.InFlight, 1024), cmp.Or(p.Bytes, 64<<20)
	p.Tries, p.MaxConsecutive, p.MaxDeadLetters = cmp.Or(p.Tries, 5), cmp.Or(p.MaxConsecutive, 10), cmp.Or(p.MaxDeadLetters, 1000)
	p.MinBackoff, p.MaxBackoff = cmp.Or(p.MinBackoff, 100*time.Millisecond), cmp.Or(p.MaxBackoff, 30*time.Second)
	p.SaveInterval = cmp.Or(p.SaveInterval, time.Second)
	return p
}

// newBackoff returns the delays between the attempts at one record.
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
