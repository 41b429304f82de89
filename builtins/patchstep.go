package builtins

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/settlement-ledger/ledger/builtins/patch"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// A patchStep is one change of a patch with its open files.
type patchStep struct {
	change patch.Change
	path   string        // of the file, as in the patch
	source *acquiredPath // the file
	moveTo string        // the new path, as in the patch; empty unless the file moves
	target *acquiredPath // the new path; nil unless the file moves

	// prepare sets the contents. before is nil for an added file, after for a deleted one.
	before, after []byte
}

// prepare reads the file and applies the change in memory. It changes no file.
func (s *patchStep) prepare(open func(*acquiredPath) (*workspace.Handle, error)) error {
	handle, err := openUnlinked(s.source, open)
	if err != nil {
		return err
	}
	if add, ok := s.change.(patch.Add); ok {
		s.after = []byte(add.Content)
		return checkMissing(handle)
	}
	if s.before, err = readEditable(handle); err != nil {
		return err
	}
	if s.source.approvedContent != nil && !bytes.Equal(s.before, s.source.approvedContent) {
		return workspace.ErrChanged
	}
	update, ok := s.change.(patch.Update)
	if !ok {
		return nil
	}
	return s.prepareUpdate(handle, update, open)
}

// prepareUpdate applies the hunks in memory and checks that the file and the new path can
// be written.
func (s *patchStep) prepareUpdate(handle *workspace.Handle, update patch.Update, open func(*acquiredPath) (*workspace.Handle, error)) error {
	after, err := update.Apply(string(s.before))
	if err != nil {
		return err
	}
	if len(after) > maxEdit {
		return fmt.Errorf("the file would have %d bytes, and the limit is %d", len(after), maxEdit)
	}
	s.after = []byte(after)
	if s.target == nil {
		return handle.CheckWrite()
	}
	target, err := openUnlinked(s.target, open)
	if err == nil {
		err = checkMissing(target)
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", s.moveTo, stepFault(err))
	}
	return nil
}

// openUnlinked returns the handle of a path. It returns an error for a path whose last
// name is a symbolic link, because the change would concern the target of the link.
func openUnlinked(h *acquiredPath, open func(*acquiredPath) (*workspace.Handle, error)) (*workspace.Handle, error) {
	if h.resolved.Linked {
		return nil, fmt.Errorf("it is a symbolic link to %s: give the path of the file itself", h.resolved.Resource)
	}
	return open(h)
}

// checkMissing returns an error if a file or directory is at the path.
func checkMissing(h *workspace.Handle) error {
	if _, err := h.Stat(); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errors.New("it exists already: update it, or give another path"), err)
	}
	return nil
}

// errFileChanged is the text for a file that changed while the call ran.
var errFileChanged = errors.New("file changed after permission approval. Read it again before patching")

// isChangedFile reports whether a file changed while the call ran.
func isChangedFile(err error) bool {
	return errors.Is(err, workspace.ErrChanged) || errors.Is(err, fs.ErrExist)
}

// stepFault returns the error for the model: errFileChanged for a file that changed, and
// otherwise the root cause.
func stepFault(err error) error {
	if isChangedFile(err) {
		return errFileChanged
	}
	return rootCause(err)
}

// verify returns workspace.ErrChanged if the file or the new path changed since prepare.
func (s *patchStep) verify() error {
	if s.target != nil {
		if err := s.target.handle.Verify(); err != nil {
			return err
		}
	}
	if err := s.source.handle.Verify(); err != nil || s.before == nil {
		return err
	}
	now, err := s.source.handle.ReadAll(maxEdit)
	if errors.Is(err, workspace.ErrTooLarge) || err == nil && !bytes.Equal(now, s.before) {
		return workspace.ErrChanged
	}
	return err
}

// commit writes, moves or removes the file. If the file changed since prepare, commit
// changes nothing and returns workspace.ErrChanged.
func (s *patchStep) commit() error {
	switch s.change.(type) {
	case patch.Add:
		_, err := s.source.handle.Write(func(*os.File) ([]byte, error) { return s.after, nil })
		return err
	case patch.Delete:
		return s.source.handle.Remove(s.before)
	}
	if s.target != nil {
		return s.source.handle.Move(s.target.handle, s.before, s.after)
	}
	return s.source.handle.Replace(s.before, s.after)
}

// applied describes the change for the output.
func (s *patchStep) applied() appliedChange {
	c := appliedChange{Type: "M", Resource: s.source.resolved.Resource, Target: s.source.resolved.Path}
	switch s.change.(type) {
	case patch.Add:
		c.Type = "A"
	case patch.Delete:
		c.Type = "D"
	}
	if s.target != nil {
		c.Type, c.To, c.Target = "R", s.target.resolved.Resource, s.target.resolved.Path
	}
	return c
}

// fileChange describes the change of the content.
func (s *patchStep) fileChange() fileChange {
	c := s.applied()
	file := c.Resource
	if c.To != "" {
		file = c.To
	}
	change := newFileChange(file, string(s.before), string(s.after))
	change.Status = map[string]string{"A": "added", "M": "modified", "D": "deleted", "R": "moved"}[c.Type]
	if c.To != "" {
		change.From = c.Resource
	}
	return change
}

// accesses returns the files that the change creates, modifies or deletes.
func (s *patchStep) accesses() []domain.FileAccess {
	path, version := s.source.resolved.Path, contentVersion(s.after)
	removed := domain.FileAccess{Path: path, Access: domain.FileDeleted}
	switch c := s.applied(); c.Type {
	case "A":
		return []domain.FileAccess{{Path: path, Access: domain.FileCreated, Version: version}}
	case "D":
		return []domain.FileAccess{removed}
	case "R":
		return []domain.FileAccess{removed, {Path: c.Target, Access: domain.FileCreated, Version: version}}
	}
	return []domain.FileAccess{{Path: path, Access: domain.FileChanged, Version: version}}
}

// preview returns the change as a unified diff, below a line that names an added, deleted
// or moved file.
func (s *patchStep) preview() string {
	change := s.fileChange()
	head := ""
	switch change.Status {
	case "added":
		head = fmt.Sprintf("new file %s\n", change.File)
	case "deleted":
		head = fmt.Sprintf("deleted file %s\n", change.File)
	case "moved":
		head = fmt.Sprintf("rename from %s\nrename to %s\n", change.From, change.File)
	default:
		head = hardLinkWarning(s.source)
	}
	return head + change.Patch
}
