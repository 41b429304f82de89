package toolfiles

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The time in which a clock is paused, such as while a person decides, is no time of the
// call.
func TestPausedClockMeasuresNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var expired atomic.Bool
		c := startClock(time.Second, func() { expired.Store(true) })
		time.Sleep(600 * time.Millisecond)
		c.pause()
		c.pause() // has no effect
		time.Sleep(time.Hour)
		c.resume()
		time.Sleep(399 * time.Millisecond)
		synctest.Wait()
		if expired.Load() {
			t.Error("the clock expired after 999 ms of its second")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if !expired.Load() {
			t.Error("the clock did not expire after its second")
		}
	})
}
