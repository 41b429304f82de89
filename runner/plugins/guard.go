package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errBroken is the error of plugin code that panicked, ended its goroutine or exceeded its
// deadline instead of returning.
var errBroken = errors.New("the plugin is broken")

// endingTime is how long code of a plugin may take to return after its context has ended.
const endingTime = time.Second

// guarded calls code of a plugin on a goroutine of its own, with a deadline. It returns
// the error of the code as a text without methods of the plugin, or an errBroken. Code
// that does not return within endingTime after the deadline, or after the end of ctx, is
// left behind.
func guarded(ctx context.Context, deadline time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		result := fmt.Errorf("%w: it ended its goroutine", errBroken)
		defer func() { done <- result }()
		defer func() {
			if v := recover(); v != nil {
				result = fmt.Errorf("%w: panic: %v", errBroken, v)
			}
		}()
		err := do(limited)
		if err != nil {
			err = errors.New(err.Error()) // the methods of err are foreign code
		}
		result = err
	}()
	select {
	case err := <-done:
		return err
	case <-limited.Done():
	}
	ending := time.NewTimer(endingTime)
	defer ending.Stop()
	select {
	case err := <-done:
		return err
	case <-ending.C:
	}
	return fmt.Errorf("%w: it did not return within %v, nor %v after its context had ended", errBroken, deadline, endingTime)
}
