package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/aymanbagabas/go-udiff"

	"github.com/settlement-ledger/ledger/domain"
)

// A toolDefinition is what a person approves: the identity of the server and everything
// that the server says about a tool.
type toolDefinition struct {
	Server      string          `json:"server"` // SHA-256 of how the server is reached
	Tool        string          `json:"tool"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// digest returns the SHA-256 of the canonical form in hexadecimal. It returns an error for
// a schema without a canonical form.
func (d toolDefinition) digest() (string, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	if data, err = domain.Canonical(data); err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// text returns the definition for a person.
func (d toolDefinition) text() string {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return d.Description
	}
	// The description reads better with its line ends.
	return "description:\n" + d.Description + "\n" + string(data) + "\n"
}

// changedFrom returns a diff from an earlier definition.
func (d toolDefinition) changedFrom(last toolDefinition) string {
	return udiff.Unified("allowed before", "now", last.text(), d.text())
}

// A definitionStore keeps the definition of each tool that was allowed last. It is safe
// for concurrent use.
type definitionStore struct {
	folder string // empty: in memory only
	mu     struct {
		sync.Mutex
		known map[domain.Name]toolDefinition
	}
}

// newDefinitionStore returns the store of a folder, which need not exist.
func newDefinitionStore(folder string) *definitionStore {
	s := &definitionStore{folder: folder}
	s.mu.known = map[domain.Name]toolDefinition{}
	return s
}

// file returns the path of the file of a tool.
func (s *definitionStore) file(name domain.Name) string {
	return filepath.Join(s.folder, string(name)+".json")
}

// maxDefinition is the size of a stored definition in bytes.
const maxDefinition = 4 << 20

// last returns the definition of a tool that was allowed last, and false if there is none.
func (s *definitionStore) last(name domain.Name) (d toolDefinition, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok = s.mu.known[name]; ok || s.folder == "" {
		return d, ok
	}
	info, err := os.Stat(s.file(name))
	if err != nil || info.Size() > maxDefinition {
		return d, false
	}
	data, err := os.ReadFile(s.file(name))
	if err != nil || json.Unmarshal(data, &d) != nil {
		return toolDefinition{}, false
	}
	s.mu.known[name] = d
	return d, true
}

// allow keeps a definition as the last one that was allowed. A folder that cannot be
// written loses only the comparison in a later process.
func (s *definitionStore) allow(name domain.Name, d toolDefinition, digest string) {
	if last, ok := s.last(name); ok {
		if known, err := last.digest(); err == nil && known == digest {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.known[name] = d
	if s.folder == "" {
		return
	}
	data, err := json.Marshal(d)
	if err != nil || os.MkdirAll(s.folder, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(s.folder, ".definition-")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil && closed == nil {
		err = os.Rename(f.Name(), s.file(name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

// preview returns the text of the question about a call: the arguments, what has changed
// since the tool was last allowed, and the definition.
func (s *definitionStore) preview(t *remoteTool, arguments json.RawMessage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "MCP server %s, tool %s\narguments: %s\n", t.server.config.Name, t.definition.Tool, arguments)
	if last, ok := s.last(t.name); ok {
		if digest, err := last.digest(); err == nil && digest != t.digest {
			fmt.Fprintf(&b, "\nTHE DEFINITION OF THIS TOOL HAS CHANGED since it was last allowed:\n%s", t.definition.changedFrom(last))
		}
	}
	fmt.Fprintf(&b, "\ndefinition sha256:%s\n%s", t.digest[:shortDigest], t.definition.text())
	return b.String()
}

// shortDigest is the number of digits of a digest in a resource.
const shortDigest = 12
