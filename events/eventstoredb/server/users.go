package server

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// A Role is what a user may do. Each may do what those before it may. The zero
// Role is not valid.
type Role int

// The roles.
const (
	Reader Role = iota + 1 // reads, subscribes, and consumes with a group
	Writer                 // writes into the streams that are opened, and manages groups
	Ledger                 // writes as the ledger, into any stream
)

var roleNames = map[Role]string{Reader: "read", Writer: "write", Ledger: "ledger"}

// String returns the name that a users file has for r.
func (r Role) String() string { return roleNames[r] }

// ParseRole is the inverse of [Role.String].
func ParseRole(text string) (Role, error) {
	for role, name := range roleNames {
		if name == text {
			return role, nil
		}
	}
	return 0, fmt.Errorf("parse role %q: want read, write or ledger", text)
}

// ErrBadUsers says that a users file cannot be read.
var ErrBadUsers = errors.New("users file is not valid")

// The errors of Users.Authenticate.
var (
	ErrNotAuthenticated = errors.New("no such user, or another password")
	ErrBusy             = errors.New("too many passwords wait to be checked: try again in a second")
)

// Users are the users of a server, with their passwords and roles. It is safe for
// concurrent use.
type Users struct {
	key       []byte // of the digests, drawn anew in each process
	byName    map[string]user
	decoyHash []byte // a hash that no password has, so that an unknown name takes as long
	checks    *passwordChecker
	mu        struct {
		sync.Mutex
		verified map[string]digest // of the password that a user last proved
	}
}

type user struct {
	hash []byte
	role Role
}

// ParseUsers reads users, one a line: name:hash:roles. The hash is one of
// bcrypt, the roles stand between commas. Empty lines, and those that begin
// with #, are passed over. What is wrong is an ErrBadUsers that names the line
// and never the hash.
func ParseUsers(r io.Reader) (*Users, error) {
	u, err := newUsers()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := u.add(line); err != nil {
			return nil, fmt.Errorf("read users: line %d: %w: %w", n, ErrBadUsers, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read users: %w: %w", ErrBadUsers, err)
	}
	if len(u.byName) == 0 {
		return nil, fmt.Errorf("read users: %w: it names nobody", ErrBadUsers)
	}
	return u, nil
}

func newUsers() (*Users, error) {
	u := &Users{key: make([]byte, 32), byName: map[string]user{}, checks: newPasswordChecker()}
	u.mu.verified = map[string]digest{}
	if _, err := rand.Read(u.key); err != nil {
		return nil, fmt.Errorf("draw a key for users: %w", err)
	}
	return u, nil
}

func (u *Users) add(line string) error {
	fields := strings.Split(line, ":")
	if len(fields) != 3 || fields[0] == "" {
		return errors.New("want name:hash:roles")
	}
	name, hash := fields[0], []byte(fields[1])
	if _, ok := u.byName[name]; ok {
		return fmt.Errorf("%s is named twice", name)
	}
	cost, err := bcrypt.Cost(hash)
	if err != nil {
		return fmt.Errorf("the hash of %s is not one of bcrypt", name)
	}
	added := user{hash: hash}
	for text := range strings.SplitSeq(fields[2], ",") {
		role, err := ParseRole(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		added.role = max(added.role, role)
	}
	u.byName[name] = added
	if u.decoyHash == nil {
		u.decoyHash, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), cost)
	}
	return err
}

// FormatUser returns the line of a users file for a user. A password is at most
// 72 bytes, as bcrypt would pass over the rest.
func FormatUser(name, password string, role Role) (string, error) {
	return formatUser(name, password, role, bcrypt.DefaultCost)
}

// formatUser is FormatUser with a bcrypt cost: a step up doubles the time of a
// check.
func formatUser(name, password string, role Role, cost int) (string, error) {
	if name == "" || strings.ContainsAny(name, ":#\r\n") || strings.TrimSpace(name) != name {
		return "", fmt.Errorf("%w: a user cannot have the name %q", ErrBadUsers, name)
	}
	if _, ok := roleNames[role]; !ok {
		return "", fmt.Errorf("%w: %s has no role", ErrBadUsers, name)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		return "", fmt.Errorf("%w: the password of %s: %w", ErrBadUsers, name, err)
	}
	return name + ":" + string(hash) + ":" + role.String(), nil
}

// DrawnUser returns Users with one user whose password the caller drew at random,
// so that it needs no slow hash: checking it never waits. A wrong password is
// checked as any other.
func SingleUser(name, password string, role Role) (*Users, error) {
	u, err := newUsers()
	if err != nil {
		return nil, err
	}
	if u.decoyHash, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), bcrypt.MinCost); err != nil {
		return nil, fmt.Errorf("add user %s: %w", name, err)
	}
	u.byName[name] = user{hash: u.decoyHash, role: role}
	u.mu.verified[name] = u.digest(name, password)
	return u, nil
}

// Authenticate returns the role of a user who gives this password, and an
// ErrNotAuthenticated if there is none. A password that was proved before is
// verified by its digest, as its hash takes longer than most calls. Any other waits
// for its turn to be hashed, for which the context may hold the connection of the
// caller ([conns.NewContext]); ErrBusy says that too many wait, and the cause of
// a context that ended is returned.
func (u *Users) Authenticate(ctx context.Context, name, password string) (Role, error) {
	from := conns.FromContext(ctx)
	found, exists := u.byName[name]
	key := u.digest(name, password)
	if !exists || !u.isVerified(name, key) {
		hash := found.hash
		if !exists {
			hash = u.decoyHash
		}
		if err := u.checks.check(ctx, from, key, hash, password); err != nil {
			return 0, err
		}
		if !exists {
			return 0, ErrNotAuthenticated
		}
		u.mu.Lock()
		u.mu.verified[name] = key
		u.mu.Unlock()
	}
	from.Authenticated()
	return found.role, nil
}

// A digest is that of a name and a password, under a key of this process.
type digest [sha256.Size]byte

func (u *Users) digest(name, password string) (sum digest) {
	h := hmac.New(sha256.New, u.key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name))))
	h.Write([]byte(name + password))
	h.Sum(sum[:0])
	return sum
}

func (u *Users) isVerified(name string, key digest) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	verified, ok := u.mu.verified[name]
	return ok && hmac.Equal(verified[:], key[:])
}
