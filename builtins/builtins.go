package builtins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/shellcommand"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrBadConfig = errors.New("tools cannot be made of this configuration")
	ErrAbsent    = errors.New("there is no such output")
	ErrPruned    = errors.New("the output was pruned")
)

// An OutputOpener opens complete outputs in managed storage. Open returns the bytes
// and the metadata of an output. The caller must close the reader. Open returns
// ErrAbsent for an output that was never stored and a *Pruned for one that was
// removed.
type OutputOpener interface {
	Open(context.Context, domain.Ref) (io.ReadCloser, domain.Retained, error)
}

// A Pruned is the error for an output that was removed from managed storage. It
// matches ErrPruned.
type Pruned struct {
	At     time.Time // time of the removal
	Policy string    // name of the policy that removed it
	SHA256 string    // digest of the removed bytes, in hexadecimal
}

// Error returns the time, the policy and the digest as a text.
func (p *Pruned) Error() string {
	return fmt.Sprintf("the output was pruned at %s by %s; its sha256 was %s", p.At.UTC().Format(time.RFC3339), p.Policy, p.SHA256)
}

// Is reports whether target is ErrPruned.
func (p *Pruned) Is(target error) bool { return target == ErrPruned }

// NoSearchProgram is the value of Config.SearchProgram with which glob and grep run no search
// program.
const NoSearchProgram = "-"

// A Config configures the tools. Workspace and Permission are required.
type Config struct {
	Workspace  *workspace.Root
	Permission permission.Evaluator
	// Outputs opens output references. Nil: read refuses them.
	Outputs OutputOpener
	// Shell is the program that runs a command line given after -c. Empty:
	// /bin/sh.
	Shell string
	// Environment is the environment of the commands, as KEY=VALUE. Nil: the
	// variables of this process that [InheritedVariables] names.
	Environment []string
	// Grace is how long a command may take to terminate. Zero: 3 seconds.
	Grace time.Duration
	// CaptureLimit is how many bytes of a command's output are captured. Zero: 1
	// MiB.
	CaptureLimit int
	// SearchProgram is the path of ripgrep. Empty: rg, if it is in PATH when the
	// tools are made. NoSearchProgram: glob and grep search without a program.
	SearchProgram string
	// FileVersions returns from the log the versions of the files that a session read or
	// wrote last, by canonical path, as domain.FileAccess has them. The version of a file
	// that the session deleted is empty; a path that is absent counts as a file that the
	// session does not know. The tools call it at the first use of a session, and an error
	// ends the call. Nil: the tools know only the calls of this process.
	FileVersions func(ctx context.Context, session domain.SessionID) (map[string]string, error)

	// versions are the versions of the files of every session; withDefaults sets it.
	versions *fileVersions
}

// defaultShell is the shell if Config.Shell is empty.
const defaultShell = "/bin/sh"

// withDefaults returns the Config with zero fields replaced by their defaults. It
// returns an ErrBadConfig that names the invalid field, and looks the shell and the
// search program up in PATH.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Workspace == nil:
		return c, fmt.Errorf("%w: Workspace is not set", ErrBadConfig)
	case c.Permission == nil:
		return c, fmt.Errorf("%w: Permission is not set", ErrBadConfig)
	case c.Grace < 0:
		return c, fmt.Errorf("%w: Grace is %v", ErrBadConfig, c.Grace)
	case c.CaptureLimit < 0 || c.CaptureLimit == 1:
		return c, fmt.Errorf("%w: CaptureLimit is %d, which is not 0 or at least 2", ErrBadConfig, c.CaptureLimit)
	}
	if c.Shell == "" {
		c.Shell = defaultShell
	}
	if _, err := exec.LookPath(c.Shell); err != nil {
		return c, fmt.Errorf("%w: Shell: %w", ErrBadConfig, err)
	}
	c.versions = newFileVersions(c.FileVersions)
	if c.Environment == nil {
		c.Environment = FilterEnvironment(os.Environ())
	}
	switch c.SearchProgram {
	case NoSearchProgram:
		c.SearchProgram = ""
	case "":
		c.SearchProgram, _ = exec.LookPath("rg") // not found: glob and grep walk the directory themselves
	default:
		if _, err := exec.LookPath(c.SearchProgram); err != nil {
			return c, fmt.Errorf("%w: SearchProgram: %w", ErrBadConfig, err)
		}
	}
	return c, nil
}

// Tools returns the tools read, write, edit, apply_patch, glob, grep and bash by name. The
// permission action of write and apply_patch is edit. It returns an ErrBadConfig that names the invalid field.
func Tools(c Config) (map[string]domain.Tool, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make builtin tools: %w", err)
	}
	tools := map[string]domain.Tool{}
	for name, make := range map[string]func() (domain.Tool, error){
		"read":  readTool{c}.tool,
		"write": writeTool{c}.tool,
		"edit":  editTool{c, (*workspace.Handle).Replace}.tool,
		"glob":  globTool{c}.tool,
		"grep":  grepTool{c}.tool,
		"bash":  bashTool{c}.tool,

		"apply_patch": newPatchTool(c).tool,
	} {
		if tools[name], err = make(); err != nil {
			return nil, fmt.Errorf("make builtin tool %s: %w", name, err)
		}
	}
	for _, name := range []string{"write", "edit", "apply_patch"} {
		tools[name] = domain.WithAction(actionEdit, tools[name])
	}
	return maps.Clone(tools), nil
}

// The permission actions that are not the name of the tool.
const (
	// actionEdit is the permission action of the tools edit, write and apply_patch.
	actionEdit = "edit"
	// actionExternal is the permission action for a path outside the workspace.
	actionExternal = "external_directory"
)

// everyResource is the save pattern of a request whose approval covers the action on
// every resource.
var everyResource = []string{"*"}

// An acquiredPath is a path that a call opened before it asks for permission, so that
// the file cannot be exchanged while a person decides. It belongs to one call. The
// caller calls release.
type acquiredPath struct {
	resolved    workspace.ResolvedPath
	handle      *workspace.Handle // nil if the path could not be opened
	openErr     error             // the error of the open, which is reported after permission was given
	personAsked bool              // a request went to the Approver, so the file may have changed since
	// approvedContent is the content of the file to edit from which the person's
	// preview was made. Nil: no person was asked, or the file could not be edited.
	approvedContent []byte
}

// acquire opens a path before permission is requested. It does not return an error of
// opening but stores it, because the error would tell the model about a path that it
// may not read.
func (c Config) acquire(target workspace.ResolvedPath) *acquiredPath {
	handle, err := target.Acquire()
	return &acquiredPath{resolved: target, handle: handle, openErr: err}
}

// release closes the handle. The acquiredPath cannot be used afterwards.
func (h *acquiredPath) release() {
	if h.handle != nil {
		h.handle.Close()
	}
}

// verifiedHandle returns the handle that acquire opened, or the error of that open. After
// a person was asked, it returns workspace.ErrChanged if the path now leads to another
// file.
func (h *acquiredPath) verifiedHandle() (*workspace.Handle, error) {
	if h.openErr != nil {
		return nil, h.openErr
	}
	if !h.personAsked {
		return h.handle, nil
	}
	return h.handle, h.handle.Verify()
}

// latestHandle returns a handle of the file as it is now, which release closes. After a
// person was asked, it returns the result of verifiedHandle. Otherwise it opens the path
// again, because another call may have replaced the file while this call waited for it.
func (h *acquiredPath) latestHandle() (*workspace.Handle, error) {
	if h.personAsked {
		return h.verifiedHandle()
	}
	handle, err := h.resolved.Acquire()
	if err != nil {
		return nil, err
	}
	h.release()
	h.handle, h.openErr = handle, nil
	return handle, nil
}

// assertExternal asks for the permission external_directory if the path lies outside the
// workspace, and returns nil otherwise. The answer "always" allows the directory and
// everything below it from then on. An approval for the root of the file system is never
// saved.
func (c Config) assertExternal(ctx context.Context, inv domain.Invocation, h *acquiredPath) error {
	t := h.resolved
	if t.External == "" {
		return nil
	}
	metadata, err := json.Marshal(map[string]string{"path": t.Path})
	if err != nil {
		return err
	}
	var save []string
	if directory := strings.TrimSuffix(t.External, "/*"); directory != "" { // empty for the root, whose pattern would cover every file
		save = []string{shellcommand.LiteralPattern(directory) + "/*"}
	}
	return c.assertPermission(ctx, inv, h, permission.Ask{Action: actionExternal, Resources: []string{t.External}, Save: save, Metadata: metadata})
}

// assertPermission asks for permission. It sets h.personAsked if rules and approvals do
// not decide the request, so that the Approver decides it.
func (c Config) assertPermission(ctx context.Context, inv domain.Invocation, h *acquiredPath, ask permission.Ask) error {
	h.personAsked = h.personAsked || c.Permission.Check(inv, ask).Effect == domain.Ask
	return c.Permission.Assert(ctx, inv, ask)
}

// assertOne asks for an action on one resource. It stores metadata as JSON in the
// record of the request. The answer "always" allows the action on every resource from
// then on. show returns the preview that a person sees; it may be nil.
func (c Config) assertOne(ctx context.Context, inv domain.Invocation, h *acquiredPath, action, resource string, metadata any, show func(context.Context) (domain.Preview, error)) error {
	data, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	return c.assertPermission(ctx, inv, h, permission.Ask{Action: action, Resources: []string{resource}, Save: everyResource, Metadata: data, Preview: show})
}

// failure returns a domain.Failure for the model: the formatted text, a colon and the
// root cause of err.
func failure(err error, format string, args ...any) error {
	return domain.Fail("%s: %s", fmt.Sprintf(format, args...), rootCause(err))
}

// rootCause unwraps errors of the operating system, such as *fs.PathError, and returns
// the innermost error. The texts of the outer errors repeat paths that the model did
// not write.
func rootCause(err error) error {
	type pathUnusable interface{ Timeout() bool }
	for {
		_, ofSystem := err.(pathUnusable)
		inner := errors.Unwrap(err)
		if !ofSystem || inner == nil {
			return err
		}
		err = inner
	}
}
