package protocol

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
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

// Users are those who may use a server. It is safe for concurrent use.
type Users struct {
	key     []byte // of the digests, drawn anew in each process
	byName  map[string]user
	nobody  []byte // a hash that no password has, so that an unknown name takes as long
	hashing chan struct{}
	mu      struct {
		sync.Mutex
		known map[string][sha256.Size]byte // the digest of the password that a user last proved
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
	u := &Users{key: make([]byte, 32), byName: map[string]user{}, hashing: make(chan struct{}, 1)}
	u.mu.known = map[string][sha256.Size]byte{}
	if _, err := rand.Read(u.key); err != nil {
		return nil, fmt.Errorf("read users: %w", err)
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
	if u.nobody == nil {
		u.nobody, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), cost)
	}
	return err
}

// FormatUser returns the line of a users file for a user. A password is at most
// 72 bytes, as bcrypt would pass over the rest.
func FormatUser(name, password string, role Role) (string, error) {
	if name == "" || strings.ContainsAny(name, ":#\r\n") || strings.TrimSpace(name) != name {
		return "", fmt.Errorf("%w: a user cannot have the name %q", ErrBadUsers, name)
	}
	if _, ok := roleNames[role]; !ok {
		return "", fmt.Errorf("%w: %s has no role", ErrBadUsers, name)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("%w: the password of %s: %w", ErrBadUsers, name, err)
	}
	return name + ":" + string(hash) + ":" + role.String(), nil
}

// role returns the role of a user who gives this password, and whether there
// is one. A password that was proved before is known by its digest: a hash
// takes longer than most calls. One hash is computed at a time, and a call that
// ends while it waits for that is nobody's.
func (u *Users) role(ctx context.Context, name, password string) (Role, bool) {
	found, exists := u.byName[name]
	digest := u.digest(password)
	if exists && u.knows(name, digest) {
		return found.role, true
	}
	hash := found.hash
	if !exists {
		hash = u.nobody
	}
	select {
	case u.hashing <- struct{}{}:
	case <-ctx.Done():
		return 0, false
	}
	err := bcrypt.CompareHashAndPassword(hash, []byte(password))
	<-u.hashing
	if err != nil || !exists {
		return 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.known[name] = digest
	return found.role, true
}

func (u *Users) digest(password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, u.key)
	h.Write([]byte(password))
	h.Sum(sum[:0])
	return sum
}

func (u *Users) knows(name string, digest [sha256.Size]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.mu.known[name]
	return ok && hmac.Equal(known[:], digest[:])
}
