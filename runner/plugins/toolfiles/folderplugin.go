package toolfiles

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// ErrBadConfig reports a Config that describes no folder of tools.
var ErrBadConfig = errors.New("not a folder of tools")

// A Config describes a folder of tools. Name, Folder and Placement are required.
type Config struct {
	// Name is the name of the plugin.
	Name string
	// Folder is the absolute path of the folder with the manifests. It need not exist yet.
	Folder string
	// Placement says how far the folder is trusted. The programs of a folder with the
	// placement Location came with a project: each start asks for the permission
	// ProjectAction, and the folder must lie below the folder of the location, with no
	// link on the way. The other placements are folders that the user chose.
	Placement domain.Placement
	// Reserved are names that no tool of the folder may have, such as the names of the
	// built-in tools in the same layer.
	Reserved []string
}

// open opens the folder.
func (c Config) open(at plugins.PluginLocation) (folderReader, error) {
	if c.Placement == domain.Location {
		return openFolder(c.Folder, at.Folder)
	}
	return openFolder(c.Folder, "")
}

// A ToolFolder is the plugin of one folder of tools. It implements plugins.Plugin and
// plugins.Refresher.
type ToolFolder struct {
	config Config
	// mu is held during Install and Refresh.
	mu struct {
		sync.Mutex
		scope plugins.PluginScope
		at    plugins.PluginLocation
		// tools has the recorded state of each manifest by its name.
		tools map[string]*recordedTool
		// excess is the key of the recorded refusals of manifests over MaxTools.
		excess string
		// fault is the recorded reason why the folder cannot be read. Empty: it can.
		fault string
	}
}

// New returns the plugin of a folder. It returns an ErrBadConfig that names the field.
func New(c Config) (*ToolFolder, error) {
	_, err := domain.ParseName(c.Name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: Name: %w", ErrBadConfig, err)
	case !filepath.IsAbs(c.Folder):
		return nil, fmt.Errorf("%w: Folder %q is no absolute path", ErrBadConfig, c.Folder)
	case c.Placement < domain.Application || c.Placement > domain.PerSession:
		return nil, fmt.Errorf("%w: Placement is not set", ErrBadConfig)
	}
	return &ToolFolder{config: c}, nil
}

// Name implements plugins.Plugin.
func (p *ToolFolder) Name() string { return p.config.Name }

// Install registers the tools of the folder. It returns an error only if the log or the
// scope fails. It records invalid manifests and an unreadable folder as refusals, and a
// later Refresh registers them after they were repaired.
func (p *ToolFolder) Install(ctx context.Context, scope plugins.PluginScope, at plugins.PluginLocation) error {
	p.mu.Lock()
	p.mu.scope, p.mu.at, p.mu.tools = scope, at, map[string]*recordedTool{}
	p.mu.Unlock()
	return p.Refresh(ctx)
}

// A recordedTool is the recorded state of one manifest.
type recordedTool struct {
	// key identifies the recorded content or fault.
	key string
	// tool is the registered generation. Nil: the manifest is refused.
	tool *fileTool
	// files are the files that the registration depends on. Nil: Refresh reads the
	// manifest every time.
	files []folderFile
	// read is the time at which the files were read.
	read time.Time
}

// racyTime is how long after a change of a file a further change may leave the stamp as it
// is, because file systems round times.
const racyTime = 2 * time.Second

// isCurrent reports whether the files are unchanged since they were read. It compares
// stamps and reads no content.
func (t *recordedTool) isCurrent(r folderReader) bool {
	if len(t.files) == 0 || t.tool != nil && t.tool.changed.Load() {
		return false
	}
	for _, f := range t.files {
		stamp, err := r.stat(f.path)
		if err != nil || stamp != f.stamp || t.read.Sub(time.Unix(0, stamp.modified)) < racyTime {
			return false
		}
	}
	return true
}

// Refresh implements plugins.Refresher. It registers new and changed tools, and closes the
// registrations of removed and broken ones. The registration of an unchanged tool stays as
// it is. It returns an error only if the log or the scope fails.
func (p *ToolFolder) Refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.config.open(p.mu.at)
	if errors.Is(err, fs.ErrNotExist) {
		return p.applyLocked(ctx, folderReader{}, nil, nil)
	}
	if err != nil {
		return p.applyLocked(ctx, folderReader{}, nil, err)
	}
	defer r.close()
	names, err := r.manifests()
	return p.applyLocked(ctx, r, names, err)
}

// applyLocked makes the scope contain the tools of the named manifests. If fault is not
// nil, it takes all tools of the folder out of effect. The caller holds mu.
func (p *ToolFolder) applyLocked(ctx context.Context, r folderReader, names []string, fault error) error {
	if fault != nil {
		names = nil
	}
	if err := p.recordFaultLocked(ctx, fault); err != nil {
		return err
	}
	excess := names[min(len(names), MaxTools):]
	names = names[:len(names)-len(excess)]
	if err := p.recordExcessLocked(ctx, excess); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.mu.tools)) {
		if _, present := slices.BinarySearch(names, name); present {
			continue
		}
		if _, err := p.mu.scope.Replace(ctx, toolPart+name, nil, nil); err != nil {
			return err
		}
		delete(p.mu.tools, name)
	}
	for _, name := range names {
		if err := p.refreshLocked(ctx, r, name); err != nil {
			return err
		}
	}
	return nil
}

// The parts of the scope: one for each manifest, one for the fault of the folder, and one
// for the manifests over the limit.
const (
	toolPart   = "tool "
	faultPart  = "folder"
	excessPart = "excess"
)

// recordFaultLocked records why the folder cannot be read, once for each reason.
func (p *ToolFolder) recordFaultLocked(ctx context.Context, fault error) error {
	text, refused := "", map[string]error{}
	if fault != nil {
		text = fault.Error()
		refused["folder "+p.config.Folder] = fault
	}
	if text == p.mu.fault {
		return nil
	}
	_, err := p.mu.scope.Replace(ctx, faultPart, nil, refused)
	if err == nil {
		p.mu.fault = text
	}
	return err
}

// maxNamed is the number of manifests over MaxTools that are refused by name.
const maxNamed = 1000

// recordExcessLocked records the refusal of the manifests over MaxTools, once for each list.
func (p *ToolFolder) recordExcessLocked(ctx context.Context, names []string) error {
	key, refused := fmt.Sprintf("%q", names), map[string]error{}
	if len(names) == 0 {
		key = ""
	}
	if key == p.mu.excess {
		return nil
	}
	for i, name := range names {
		if i == maxNamed {
			refused[fmt.Sprintf("(%d more)", len(names)-maxNamed)] = errExcess
			break
		}
		refused[name] = errExcess
	}
	_, err := p.mu.scope.Replace(ctx, excessPart, nil, refused)
	if err == nil {
		p.mu.excess = key
	}
	return err
}

// errExcess is the reason why a manifest over MaxTools is refused.
var errExcess = fmt.Errorf("the folder has more than %d manifests; the first ones by name are used", MaxTools)

// refreshLocked registers the tool of one manifest, or records the reason for its refusal.
// It does nothing if the result is on record already. A refused manifest takes the earlier
// generation of its tool out of effect. The caller holds mu.
func (p *ToolFolder) refreshLocked(ctx context.Context, r folderReader, name string) error {
	last := p.mu.tools[name]
	if last != nil && last.isCurrent(r) {
		return nil
	}
	next, tool, reason := p.read(r, name)
	if last != nil && last.key == next.key {
		if last.tool != nil {
			last.tool.changed.Store(false)
		}
		last.files, last.read = next.files, next.read
		return nil
	}
	tools, refused := map[string]domain.Tool{}, map[string]error{}
	if reason != nil {
		refused[name] = reason
	} else {
		tools[name] = tool
	}
	if _, err := p.mu.scope.Replace(ctx, toolPart+name, tools, refused); err != nil {
		return err
	}
	p.mu.tools[name] = next
	return nil
}

// read reads one manifest with its files and makes its tool. If the manifest is refused,
// read returns the reason.
func (p *ToolFolder) read(r folderReader, name string) (next *recordedTool, tool domain.Tool, reason error) {
	next = &recordedTool{read: time.Now()}
	g, reason := r.load(name)
	if reason == nil && slices.Contains(p.config.Reserved, name) {
		reason = fmt.Errorf("the name %s is reserved for a tool of this program", name)
	}
	if reason == nil && !inFolder(0, g.manifest.Command[0]) {
		_, reason = lookProgram(g.manifest.Command[0], p.mu.at.Environment)
	}
	if reason == nil {
		next.tool = &fileTool{fileGeneration: g.withoutContent(), config: p.config, at: p.mu.at}
		tool, reason = next.tool.make()
	}
	if reason == nil {
		next.key, next.files = "sha256:"+g.digest, next.tool.files
		return next, tool, nil
	}
	// Refresh reads a refused manifest every time, because the fault may be in something
	// without a stamp, such as a missing program.
	next.tool = nil
	h := sha256.New()
	for _, f := range g.files {
		f.addTo(h)
	}
	next.key = fmt.Sprintf("refused %x: %v", h.Sum(nil), reason)
	return next, domain.Tool{}, reason
}
