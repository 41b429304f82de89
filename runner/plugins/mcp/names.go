package mcp

import (
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// nameClaims say which server has a tool name, so that two servers never have the same. It
// is safe for concurrent use.
type nameClaims struct {
	reserved []string
	mu       struct {
		sync.Mutex
		owner map[domain.Name]string
	}
}

// newNameClaims returns claims without an owner of a name.
func newNameClaims(reserved []string) *nameClaims {
	c := &nameClaims{reserved: reserved}
	c.mu.owner = map[domain.Name]string{}
	return c
}

// claim gives a name to a server. It returns an error for a reserved name, and for a name
// of another server.
func (c *nameClaims) claim(name domain.Name, server string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.reserved, string(name)) {
		return fmt.Errorf("the name %s is reserved for a tool of this program", name)
	}
	if owner, ok := c.mu.owner[name]; ok && owner != server {
		return fmt.Errorf("the MCP server %s has a tool of the name %s: rename one of the servers", owner, name)
	}
	c.mu.owner[name] = server
	return nil
}

// release takes a name from a server.
func (c *nameClaims) release(name domain.Name, server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.owner[name] == server {
		delete(c.mu.owner, name)
	}
}
