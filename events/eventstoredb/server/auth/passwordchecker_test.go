package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// The first correct password of a user is checked before hundreds of earlier
// wrong ones, of the same user, of another user, or of unknown users.
func TestRightPasswordsDoNotWaitForWrongOnes(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]func(i int) string{
		"of the same user": func(int) string { return "writer" },
		"of another user":  func(int) string { return "reader" },
		"of no user":       func(i int) string { return fmt.Sprint("nobody-", i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			users := users(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer users.OccupyWorkers()()
			const attempts = 300
			var wrong sync.WaitGroup
			ended := make(chan error, attempts)
			for i := range attempts {
				wrong.Go(func() {
					_, err := users.Authenticate(ctx, who(i), fmt.Sprint("wrong-", i))
					ended <- err
				})
			}
			// All wrong passwords over the limit of a network are rejected.
			for range attempts - auth.MaxOriginChecks {
				if err := <-ended; !errors.Is(err, auth.ErrBusy) {
					t.Fatalf("a wrong password of very many: %v, want that too many wait", err)
				}
			}
			right := make(chan error, 1)
			go func() {
				_, err := users.Authenticate(ctx, "writer", "writer")
				right <- err
			}()
			if err := <-ended; !errors.Is(err, auth.ErrBusy) {
				t.Fatalf("the oldest wrong password: %v, want that it makes room", err)
			}
			users.CheckNext()
			select {
			case err := <-right:
				if err != nil {
					t.Errorf("a right password: %v", err)
				}
			case err := <-ended:
				t.Errorf("a wrong password was checked before the right one: %v", err)
			}
			cancel()
			wrong.Wait()
			if left := users.Waiting(); left != 0 {
				t.Errorf("%d passwords wait for callers that are gone", left)
			}
		})
	}
}

// If the maximal number of checks waits, one for each network, another password
// of the next network replaces that network's check.
func TestAPasswordReplacesTheOnlyOneOfItsNetwork(t *testing.T) {
	t.Parallel()
	users := users(t)
	release := users.OccupyWorkers()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	limiter := conns.New(conns.Config{})
	var wrong sync.WaitGroup
	first := make(chan error, 1)
	for i := range auth.MaxChecks {
		wrong.Go(func() {
			_, err := users.Authenticate(connected(ctx, t, limiter, i), "writer", fmt.Sprint("wrong-", i))
			if i == 0 {
				first <- err
			}
		})
		for users.Waiting() <= i { // they wait in this order
			time.Sleep(100 * time.Microsecond)
		}
	}
	right := make(chan error, 1)
	go func() {
		_, err := users.Authenticate(connected(t.Context(), t, limiter, 0), "writer", "writer")
		right <- err
	}()
	if err := <-first; !errors.Is(err, auth.ErrBusy) {
		t.Errorf("the password that waited longest: %v, want that too many wait", err)
	}
	cancel()
	wrong.Wait()
	release()
	select {
	case err := <-right:
		if err != nil {
			t.Errorf("the right password: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the right password is not checked")
	}
	if left := users.Waiting(); left != 0 {
		t.Errorf("%d passwords wait, and each was answered", left)
	}
}

// connected returns a context with a connection from a numbered network.
func connected(ctx context.Context, t *testing.T, limiter *conns.Limiter, network int) context.Context {
	t.Helper()
	c, err := limiter.Listener(dialed{network: network}).Accept()
	if err != nil {
		t.Error(err)
		return ctx
	}
	t.Cleanup(func() { c.Close() })
	return conns.NewContext(ctx, c)
}

// A dialed listener accepts connections from a numbered network.
type dialed struct {
	net.Listener
	network int
}

func (d dialed) Accept() (net.Conn, error) {
	c, client := net.Pipe()
	return addressed{c, &net.TCPAddr{IP: net.IPv4(10, 0, byte(d.network>>8), byte(d.network))}}, client.Close()
}

type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

// Calls with the same name and password share one check. A wrong password is
// cached.
func TestSamePasswordsAreCheckedOnce(t *testing.T) {
	t.Parallel()
	users := users(t)
	for password, want := range map[string]error{"writer": nil, "wrong": auth.ErrNotAuthenticated} {
		release := users.OccupyWorkers()
		const calls = 200
		ended := make(chan error, calls)
		for range calls {
			go func() {
				_, err := users.Authenticate(t.Context(), "writer", password)
				ended <- err
			}()
		}
		for users.Callers() < calls {
			time.Sleep(time.Millisecond)
		}
		if n := users.Waiting(); n != 1 {
			t.Errorf("%d checks wait for %d calls with one password, want 1", n, calls)
		}
		release()
		for range calls {
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("password %s: %v, want %v", password, err, want)
			}
		}
		release = users.OccupyWorkers()
		if _, err := users.Authenticate(t.Context(), "writer", password); !errors.Is(err, want) {
			t.Errorf("password %s again: %v, want %v", password, err, want)
		}
		release()
	}
}

// The password of a SingleUser never waits for a worker.
func TestSingleUserNeedsNoPasswordCheck(t *testing.T) {
	t.Parallel()
	users, err := auth.SingleUser("local", "drawn", auth.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	release := users.OccupyWorkers()
	defer release()
	if role, err := users.Authenticate(t.Context(), "local", "drawn"); err != nil || role != auth.Ledger {
		t.Errorf("the password: %v, %v, want ledger", role, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := users.Authenticate(ctx, "local", "other"); err == nil {
		t.Error("another password was taken")
	}
}
