package auth

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

// A Role is what a user may do. Each role includes the ones before it. The zero
// Role is invalid.
type Role int

// The roles.
const (
	Reader Role = iota + 1 // may read, subscribe and consume from groups
	Writer                 // may also append to streams that the server opens to writers, and manage groups
	Ledger                 // may also append ledger records to any stream
)

var roleNames = map[Role]string{Reader: "read", Writer: "write", Ledger: "ledger"}

// String returns the name of the role in a users file.
func (r Role) String() string { return roleNames[r] }

// ParseRole returns the role with a name. It is the inverse of [Role.String].
func ParseRole(text string) (Role, error) {
	for role, name := range roleNames {
		if name == text {
			return role, nil
		}
	}
	return 0, fmt.Errorf("parse role %q: want read, write or ledger", text)
}

// ErrBadUsers reports an invalid users file, user name or password.
var ErrBadUsers = errors.New("invalid users file")

// The errors of [Users.Authenticate].
var (
	ErrNotAuthenticated = errors.New("unknown user or password not accepted")
	ErrBusy             = errors.New("too many passwords wait to be checked: try again in a second")
)

// Users holds the users of a server, with their password hashes and roles. It
// is safe for concurrent use.
type Users struct {
	key       []byte // the random key of the digests, new in each process
	byName    map[string]user
	decoyHash []byte // compared for unknown names, so that they take as long as known ones
	checks    *passwordChecker
	mu        struct {
		sync.Mutex
		verified map[string]digest // of the password with which each user last authenticated
	}
}

// A user has a bcrypt hash and a role.
type user struct {
	hash []byte
	role Role
}

// ParseUsers reads a users file. Each line is name:hash:roles, with a bcrypt
// hash and one or more roles separated by commas. The highest role is in
// effect. ParseUsers skips empty lines and lines that begin with #. An
// ErrBadUsers names the first invalid line and never contains a hash.
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
		return nil, fmt.Errorf("read users: %w: it has no user", ErrBadUsers)
	}
	return u, nil
}

// newUsers returns Users without a user.
func newUsers() (*Users, error) {
	u := &Users{key: make([]byte, 32), byName: map[string]user{}, checks: newPasswordChecker()}
	u.mu.verified = map[string]digest{}
	if _, err := rand.Read(u.key); err != nil {
		return nil, fmt.Errorf("draw a key for users: %w", err)
	}
	return u, nil
}

// add parses one line of a users file and adds the user. The first call also
// generates the decoy hash, the bcrypt hash that is compared for unknown user
// names, with the cost of this user's hash.
func (u *Users) add(line string) error {
	fields := strings.Split(line, ":")
	if len(fields) != 3 || fields[0] == "" {
		return errors.New("want name:hash:roles")
	}
	name, hash := fields[0], []byte(fields[1])
	if _, ok := u.byName[name]; ok {
		return fmt.Errorf("user %s occurs twice", name)
	}
	cost, err := bcrypt.Cost(hash)
	if err != nil {
		return fmt.Errorf("the hash of user %s is not a bcrypt hash", name)
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

// FormatUser returns the line of a users file for a user. It returns
// ErrBadUsers for an invalid name or role, and for a password over 72 bytes,
// since bcrypt would ignore the bytes after them.
func FormatUser(name, password string, role Role) (string, error) {
	return formatUser(name, password, role, bcrypt.DefaultCost)
}

// formatUser returns the line of FormatUser with a hash of the given bcrypt
// cost. Each increment of the cost doubles the time of a comparison.
func formatUser(name, password string, role Role, cost int) (string, error) {
	if name == "" || strings.ContainsAny(name, ":#\r\n") || strings.TrimSpace(name) != name {
		return "", fmt.Errorf("%w: invalid user name %q", ErrBadUsers, name)
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

// SingleUser returns Users with one user. The caller has generated the password
// at random, so it needs no slow hash, and the correct password never waits for
// a worker. A wrong password is checked as in other Users.
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

// Authenticate returns the role of the user with a name and password, or
// ErrNotAuthenticated. A bcrypt comparison takes longer than most calls, so
// Authenticate caches the digest of each user's last correct password, and
// accepts that password without a comparison. The comparison of any other
// password waits for a worker, in an order that depends on the connection in
// ctx (see [conns.NewContext]). Authenticate marks the connection as
// authenticated or failed. ErrBusy reports that too many comparisons wait. If
// ctx ends first, Authenticate returns the cause of ctx.
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

// A digest is the HMAC of a name and a password, under a key of this process.
type digest [sha256.Size]byte

// digest returns the digest of a name and a password.
func (u *Users) digest(name, password string) (sum digest) {
	h := hmac.New(sha256.New, u.key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name))))
	h.Write([]byte(name + password))
	h.Sum(sum[:0])
	return sum
}

// isVerified reports whether key is the digest of the user's last correct
// password. It compares in constant time.
func (u *Users) isVerified(name string, key digest) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	verified, ok := u.mu.verified[name]
	return ok && hmac.Equal(verified[:], key[:])
}
