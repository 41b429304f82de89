package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// ErrBadConfig is the error of Tools and NewExa for a field that is missing or invalid.
// Callers match it with errors.Is.
var ErrBadConfig = errors.New("the configuration of the web tools is incomplete")

// A Config configures the tools. Permission is required.
type Config struct {
	Permission permission.Evaluator
	// Search answers websearch and codesearch. Nil: both tools are made, need the
	// environment variable EXA_API_KEY to be offered, and fail if they are called.
	Search SearchProvider
	// UserAgent names the program to web servers, such as ledger/1.2. Empty: ledger.
	UserAgent string

	// lookup resolves a host name. Nil: the resolver of the system.
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// withDefaults returns the Config with zero fields replaced by their defaults, or an
// ErrBadConfig that names the invalid field.
func (c Config) withDefaults() (Config, error) {
	if c.Permission == nil {
		return c, fmt.Errorf("%w: Permission is not set", ErrBadConfig)
	}
	if c.UserAgent == "" {
		c.UserAgent = "ledger"
	}
	if strings.ContainsFunc(c.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		return c, fmt.Errorf("%w: UserAgent is not printable ASCII", ErrBadConfig)
	}
	if c.lookup == nil {
		c.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return c, nil
}

// Tools returns the tools webfetch, websearch and codesearch by name. It returns an
// ErrBadConfig that names the invalid field.
func Tools(c Config) (map[string]domain.Tool, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make web tools: %w", err)
	}
	tools := map[string]domain.Tool{}
	for name, make := range map[string]func() (domain.Tool, error){
		"webfetch":   webfetchTool{c, newMarkdownConverter()}.tool,
		"websearch":  searchTool{c}.websearch,
		"codesearch": searchTool{c}.codesearch,
	} {
		if tools[name], err = make(); err != nil {
			return nil, fmt.Errorf("make web tool %s: %w", name, err)
		}
	}
	return tools, nil
}

// everyResource is the save pattern of a request whose approval covers the action on
// every resource.
var everyResource = []string{"*"}
