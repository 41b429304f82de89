package auth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// A caller whose context has ended does not wait for a worker, and a cached
// password does not either.
func TestCancelledCallerDoesNotWaitForItsPassword(t *testing.T) {
	t.Parallel()
	users := users(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	release := users.OccupyWorkers()
	if _, err := users.Authenticate(gone, "writer", "writer"); err == nil {
		t.Error("a caller that is gone was let in")
	}
	release()
	for range 2 { // the second time the password is known
		if role, err := users.Authenticate(t.Context(), "writer", "writer"); err != nil || role != auth.Writer {
			t.Errorf("a caller that is there: %v, %v, want write", role, err)
		}
		release = users.OccupyWorkers()
		if role, err := users.Authenticate(t.Context(), "writer", "writer"); err != nil || role != auth.Writer {
			t.Errorf("a password that was proved waits for its turn: %v, %v", role, err)
		}
		release()
	}
}

func TestInvalidUsersFileIsRefused(t *testing.T) {
	t.Parallel()
	costly, err := auth.FormatUser("a", "secret", auth.Writer)
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := bcrypt.Cost([]byte(strings.Split(costly, ":")[1])); err != nil || cost != bcrypt.DefaultCost {
		t.Errorf("FormatUser hashes with the cost %d, %v, want %d", cost, err, bcrypt.DefaultCost)
	}
	good, err := auth.FormatUserAt("a", "secret", auth.Writer, bcrypt.MinCost) // else as costly
	if err != nil {
		t.Fatal(err)
	}
	hash := strings.Split(good, ":")[1]
	for _, text := range []string{"", "# nobody\n", "a", "a:b", "a:b:read", ":" + hash + ":read", "a:" + hash + ":", "a:" + hash + ":root", good + ":x", good + "\n" + good} {
		_, err := auth.ParseUsers(strings.NewReader(text))
		if !errors.Is(err, auth.ErrBadUsers) {
			t.Errorf("ParseUsers(%q) = %v, want ErrBadUsers", text, err)
		} else if strings.Contains(err.Error(), hash) {
			t.Errorf("the error %q has the hash", err)
		}
	}
	for _, text := range []string{good, "\n# a\n  " + good + "  \r\n", "a:" + hash + ":read,write"} {
		if _, err := auth.ParseUsers(strings.NewReader(text)); err != nil {
			t.Errorf("ParseUsers(%q): %v", text, err)
		}
	}
	both, err := auth.ParseUsers(strings.NewReader("a:" + hash + ":write,read"))
	if err != nil {
		t.Fatal(err)
	}
	if role, err := both.Authenticate(t.Context(), "a", "secret"); err != nil || role != auth.Writer {
		t.Errorf("a user with the roles write and read is %v, %v, want write", role, err)
	}
	for _, name := range []string{"", "a:b", "a\nb", " a", "#a"} {
		if line, err := auth.FormatUser(name, "x", auth.Reader); !errors.Is(err, auth.ErrBadUsers) {
			t.Errorf("FormatUser(%q) = %q, %v, want ErrBadUsers", name, line, err)
		}
	}
	if line, err := auth.FormatUser("a", strings.Repeat("x", 73), auth.Reader); !errors.Is(err, auth.ErrBadUsers) {
		t.Errorf("FormatUser with a password of 73 bytes = %q, %v, want ErrBadUsers", line, err)
	}
}

// users returns three users; writer and reader have their names as passwords.
// The hashes have the lowest cost.
func users(t *testing.T) *auth.Users {
	t.Helper()
	var lines []string
	for _, u := range []struct {
		name, password string
		role           auth.Role
	}{{"admin", "changeit", auth.Ledger}, {"writer", "writer", auth.Writer}, {"reader", "reader", auth.Reader}} {
		hash, err := bcrypt.GenerateFromPassword([]byte(u.password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s:%s:%s", u.name, hash, u.role)
		lines = append(lines, line)
	}
	parsed, err := auth.ParseUsers(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
