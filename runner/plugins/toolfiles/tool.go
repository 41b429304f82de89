package toolfiles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// ProjectAction is the permission action for the start of a program of a project's
// folder. Its resource is "NAME sha256:DIGEST", with the first 12 digits of the digest of
// the tool's files.
const ProjectAction = "project_tool"

// A fileTool is one generation of a tool. It is safe for concurrent use.
type fileTool struct {
	fileGeneration
	config Config
	at     plugins.PluginLocation
	// changed is set if a call has found other files than the registered ones.
	changed atomic.Bool
}

// make returns the domain.Tool of the generation. It returns domain.ErrBadSchema for a
// schema that is not supported.
func (t *fileTool) make() (domain.Tool, error) {
	m := t.manifest
	spec := domain.Spec[json.RawMessage, json.RawMessage]{
		Description: m.Description, Input: rawJSON{json.RawMessage(m.Input)}, Output: rawJSON{json.RawMessage(m.Output)},
		Execute: t.run, Idempotent: m.Idempotent, AsksFirst: m.AsksFirst, Available: m.Available,
	}
	if m.Title != "" {
		spec.Title = func(in json.RawMessage) string { return fieldText(in, m.Title) }
	}
	if m.Text != "" {
		spec.Present = func(_ json.RawMessage, out domain.Encoded[json.RawMessage]) []domain.Content {
			return presentField(out, m.Text)
		}
	}
	if m.InvalidInput != "" {
		spec.InvalidInput = func(_ json.RawMessage, fault *domain.ValidationError) string {
			return strings.ReplaceAll(m.InvalidInput, "{faults}", fault.Error())
		}
	}
	tool, err := domain.Make(spec)
	return domain.WithAction(m.Action, tool), err
}

// rawJSON is the codec of a value that a program reads and writes as JSON.
type rawJSON struct{ schema json.RawMessage }

// Schema returns the schema of the manifest.
func (c rawJSON) Schema() json.RawMessage { return c.schema }

// Decode returns a copy of the document.
func (c rawJSON) Decode(document json.RawMessage) (json.RawMessage, error) {
	return bytes.Clone(document), nil
}

// Encode returns the document.
func (c rawJSON) Encode(value json.RawMessage) (json.RawMessage, error) { return value, nil }

// fieldText returns a field of an object: the text of a string, and otherwise its JSON. It
// returns no text if the field is absent.
func fieldText(object json.RawMessage, field string) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(fields[field], &text) == nil {
		return text
	}
	return string(fields[field])
}

// presentField presents the field of an output that the model reads. If the output has no
// such field, it returns nil, and the model reads the whole output.
func presentField(out domain.Encoded[json.RawMessage], field string) []domain.Content {
	if text := fieldText(out.JSON(), field); text != "" {
		return []domain.Content{domain.Text(text)}
	}
	return nil
}

// run settles one call: it asks for the permission to run a program of a project, reads the
// files again and compares them with the registered ones, and runs the program from a
// private copy of exactly these files.
func (t *fileTool) run(ctx context.Context, in json.RawMessage, inv domain.Invocation) (json.RawMessage, error) {
	if t.config.Placement == domain.Location {
		if err := t.at.Permission.Assert(ctx, inv, t.projectAsk()); err != nil {
			return nil, err
		}
	}
	files, err := t.reload()
	if err != nil {
		return nil, err
	}
	dir, err := writeCopy(files)
	if err != nil {
		return nil, fmt.Errorf("copy the files of tool %s: %w", t.name, err)
	}
	defer os.RemoveAll(dir)
	command, err := t.command(dir)
	if err != nil {
		return nil, domain.Fail("The tool %s cannot run: %v", t.name, err)
	}
	p, err := t.at.Start(command)
	if err != nil {
		return nil, fmt.Errorf("start tool %s: %w", t.name, err)
	}
	return newConversation(t, inv, p).run(ctx, in)
}

// projectAsk returns the request to run this generation of a project's tool. An approval
// that a person saves covers this generation only.
func (t *fileTool) projectAsk() permission.Ask {
	resource := fmt.Sprintf("%s sha256:%s", t.name, t.digest[:12])
	return permission.Ask{
		Action: ProjectAction, Resources: []string{resource}, Save: []string{resource},
		Preview: permission.TextPreview(domain.PreviewCommand, t.describe()),
	}
}

// describe returns the text that a person reads before a program of a project runs: the
// command, the environment variables that it gets, and its files with their digests.
func (t *fileTool) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q\n", t.manifest.Command)
	if len(t.manifest.Env) > 0 {
		fmt.Fprintf(&b, "with the variables %s\n", strings.Join(t.manifest.Env, ", "))
	}
	fmt.Fprintf(&b, "from %s:\n", t.config.Folder)
	for _, f := range t.files {
		fmt.Fprintf(&b, "  %s %s\n", f.sum, f.path)
	}
	return b.String()
}

// reload reads the files of the tool again. If they differ from the registered files,
// reload returns a failure for the model, and the next Refresh registers the changed
// files.
func (t *fileTool) reload() ([]folderFile, error) {
	r, err := t.config.open(t.at)
	if err == nil {
		defer r.close()
		var now fileGeneration
		if now, err = r.load(string(t.name)); err == nil && now.digest == t.digest {
			return now.files, nil
		}
	}
	t.changed.Store(true)
	if err == nil {
		err = errors.New("their content is another")
	}
	return nil, domain.Fail("The tool %s did not run: its files changed after it was offered (%v). "+
		"Its current form is offered in the next turn, if it has one.", t.name, err)
}

// command returns the command of a call. A word that names a file of the folder becomes
// the path of the copy in dir.
func (t *fileTool) command(dir string) (process.Command, error) {
	words := slices.Clone(t.manifest.Command)
	for i, word := range words {
		if inFolder(i, word) {
			words[i] = filepath.Join(dir, filepath.FromSlash(path.Clean(word)))
		}
	}
	program, err := lookProgram(words[0], t.at.Environment)
	if err != nil {
		return process.Command{}, err
	}
	return process.Command{
		Program: program, Args: words[1:], Dir: t.at.Folder, Env: builtins.FilterEnvironment(t.at.Environment, t.manifest.Env...),
		CaptureLimit: maxErrorOutput, GracePeriod: gracePeriod,
	}, nil
}

// lookProgram returns the path of a program. It searches a name without a slash in the
// absolute directories of the PATH of an environment.
func lookProgram(program string, environ []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, checkExecutable(program)
	}
	for _, variable := range slices.Backward(environ) {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if file := filepath.Join(dir, program); filepath.IsAbs(dir) && checkExecutable(file) == nil {
				return file, nil
			}
		}
		break
	}
	return "", fmt.Errorf("the program %s is not in PATH", program)
}

// checkExecutable returns an error unless the path leads to a regular executable file.
func checkExecutable(file string) error {
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s is no executable file", file)
	}
	return err
}
