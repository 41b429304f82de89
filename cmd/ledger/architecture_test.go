package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the module path, the prefix of the import paths of its packages.
const module = "github.com/settlement-ledger/ledger"

// An importRule lists the imports that one package may have besides the standard library.
// A package may import a third-party module only if its rule lists it.
type importRule struct {
	imports []string // exact paths below the module; "*" allows every package of the module
	uses    []string // third-party import paths, each including the packages below it
}

// importRules maps each package, by its path below the module, to its rule. It is the
// import graph that the design allows: TestImportsPointDown compares it with the imports
// of the source.
var importRules = map[string]importRule{
	"domain": {nil, []string{
		"github.com/oklog/ulid/v2", "github.com/google/jsonschema-go", "github.com/santhosh-tekuri/jsonschema/v6",
		"github.com/go-json-experiment/json",
	}},
	"events":                       {[]string{"domain"}, nil},
	"events/embedded":              {[]string{"events", "events/embedded/backup", "events/embedded/layout", "events/embedded/storedir", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"events/embedded/backup":       {[]string{"events", "events/embedded/layout", "events/embedded/storedir", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"events/embedded/integrity":    {[]string{"events", "events/embedded/layout", "events/embedded/storedir", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"events/embedded/layout":       {[]string{"domain", "events", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"events/embedded/storedir":     {[]string{"events", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"events/pebblefiles":           {nil, []string{"github.com/cenkalti/backoff/v5", "github.com/cockroachdb/pebble/v2"}},
	"events/pebblefiles/filestest": {[]string{"events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"domain/lawtest":               {nil, nil},
	"events/eventstest":            {[]string{"domain", "domain/lawtest", "events"}, nil},
	"events/transcripts":           {[]string{"domain", "events"}, []string{"github.com/go-json-experiment/json", "github.com/klauspost/compress", "modernc.org/sqlite"}},
	"projections":                  {[]string{"domain", "events"}, nil},
	"projections/calls":            {[]string{"domain", "events", "projections", "projections/spill"}, nil},
	"projections/spill":            {[]string{"events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"projections/catalog":          {[]string{"domain", "events", "projections"}, nil},
	"projections/conversation":     {[]string{"domain", "events", "projections"}, nil},
	"projections/index":            {[]string{"domain", "events", "projections", "projections/calls", "projections/catalog", "projections/staleness", "projections/index/where"}, []string{"modernc.org/libc", "modernc.org/sqlite"}},
	"projections/index/where":      {nil, nil},
	"projections/projectionstest":  {[]string{"domain", "domain/lawtest", "events", "projections"}, nil},
	"projections/openwork":         {[]string{"domain", "events", "projections"}, nil},
	"projections/timeline":         {[]string{"domain", "events"}, nil},
	"projections/comparison":       {[]string{"domain", "events", "projections/timeline"}, nil},
	"projections/staleness":        {[]string{"domain", "events", "projections", "projections/catalog"}, nil},
	"registry":                     {[]string{"domain", "events", "projections", "projections/catalog", "projections/staleness"}, nil},
	"registry/registrytest":        {[]string{"domain", "domain/lawtest", "events", "events/eventstest", "projections", "projections/calls", "registry"}, nil},
	"registry/outputs":             {[]string{"domain", "events/pebblefiles"}, []string{"github.com/cockroachdb/pebble/v2"}},
	"registry/outputs/remote":      {[]string{"domain", "events", "registry/outputs"}, []string{"github.com/cenkalti/backoff/v5"}},
	"builtins":                     {[]string{"domain", "builtins/filesearch", "builtins/media", "builtins/patch", "builtins/permission", "builtins/process", "builtins/shellcommand", "builtins/workspace"}, []string{"github.com/aymanbagabas/go-udiff"}},
	"builtins/filesearch":          {[]string{"builtins/workspace"}, []string{"github.com/bmatcuk/doublestar/v4", "github.com/git-pkgs/gitignore"}},
	"builtins/media":               {[]string{"domain"}, []string{"golang.org/x/image"}},
	"builtins/patch":               {nil, nil},
	"builtins/frontmatter":         {nil, []string{"go.yaml.in/yaml/v3"}},
	"builtins/lsp":                 {[]string{"domain", "builtins/permission", "builtins/process", "builtins/shellcommand", "builtins/workspace"}, []string{"github.com/sourcegraph/jsonrpc2"}},
	"builtins/permission":          {[]string{"domain"}, []string{"golang.org/x/sys"}},
	"builtins/process":             {nil, []string{"golang.org/x/sys"}},
	"builtins/sessiontools":        {[]string{"domain", "builtins/permission"}, nil},
	"builtins/shellcommand":        {nil, []string{"mvdan.cc/sh/v3"}},
	"builtins/skills":              {[]string{"domain", "builtins/frontmatter", "builtins/permission"}, nil},
	"builtins/web":                 {[]string{"domain", "builtins/permission"}, []string{"github.com/JohannesKaufmann/html-to-markdown/v2", "golang.org/x/net"}},
	"builtins/workspace":           {nil, []string{"golang.org/x/sys"}},
	"runner":                       {[]string{"domain", "events", "projections", "projections/conversation", "projections/openwork", "registry"}, []string{"golang.org/x/sync"}},
	"runner/plugins":               {[]string{"domain", "registry", "builtins/permission", "builtins/process"}, nil},
	"runner/agents":                {[]string{"domain", "builtins/frontmatter", "builtins/permission"}, nil},
	"runner/versioncontrol":        {[]string{"events"}, nil},
	"runner/replay":                {[]string{"domain", "events", "projections/catalog", "projections/conversation", "projections/staleness", "registry", "runner"}, nil},
	"runner/secrets":               {nil, []string{"github.com/go-json-experiment/json"}},
	"runner/plugins/mcp": {[]string{
		"domain", "builtins", "builtins/permission", "builtins/process", "runner/plugins", "runner/plugins/mcp/mcpconfig", "runner/plugins/mcp/transport", "runner/secrets",
	}, []string{"github.com/modelcontextprotocol/go-sdk", "github.com/go-json-experiment/json", "github.com/aymanbagabas/go-udiff"}},
	"runner/plugins/mcp/mcpconfig":   {[]string{"builtins"}, []string{"github.com/go-json-experiment/json"}},
	"runner/plugins/mcp/conformance": {nil, nil},
	"runner/plugins/mcp/transport":   {[]string{"builtins/process"}, []string{"github.com/modelcontextprotocol/go-sdk"}},
	"runner/plugins/toolfiles":       {[]string{"domain", "builtins", "builtins/permission", "builtins/process", "runner/plugins"}, []string{"github.com/go-json-experiment/json"}},
	"runner/engine": {[]string{
		"domain", "events", "events/embedded", "events/embedded/storedir", "projections", "projections/conversation", "projections/openwork",
		"registry", "registry/outputs", "builtins/permission", "builtins/sessiontools", "runner", "runner/plugins",
	}, nil},
	"runner/engine/shared": {[]string{
		"domain", "events", "events/embedded", "events/embedded/backup", "events/embedded/storedir", "events/eventstoredb", "events/eventstoredb/server",
		"events/eventstoredb/server/auth", "events/eventstoredb/server/conns", "projections", "registry/outputs", "registry/outputs/remote", "runner/engine",
	}, nil},
	"runner/providers/script":        {[]string{"domain", "projections/conversation", "runner"}, nil},
	"runner/providers/modelapi":      {[]string{"domain", "projections/conversation", "runner", "runner/secrets"}, nil},
	"runner/providers/anthropic":     {[]string{"domain", "events", "projections/conversation", "runner", "runner/secrets", "runner/providers/modelapi"}, []string{"github.com/anthropics/anthropic-sdk-go"}},
	"runner/providers/openai":        {[]string{"domain", "events", "projections/conversation", "runner", "runner/secrets", "runner/providers/modelapi"}, []string{"github.com/openai/openai-go/v3"}},
	"runner/providers/providerstest": {nil, nil},
	"cmd/ledger/bench": {[]string{
		"domain", "events", "events/embedded", "events/embedded/storedir", "projections/index", "registry", "registry/outputs",
	}, nil},
	"cmd/ledger/fault": {[]string{
		"domain", "events", "events/embedded", "events/embedded/backup", "events/eventstoredb", "events/eventstoredb/server", "events/eventstoredb/server/auth", "events/transcripts",
		"registry/outputs", "registry/outputs/remote", "runner", "runner/engine/shared",
		"projections/publish", "projections/publish/jetstream", "projections/publish/jsonl", "cmd/ledger/resumable",
	}, nil},
	"cmd/ledger/render": {[]string{"domain", "projections/calls", "cmd/ledger/fault"}, []string{
		"github.com/charmbracelet/x", "github.com/dustin/go-humanize", "github.com/vbauerster/mpb/v8", "golang.org/x/sys", "golang.org/x/term",
	}},
	"cmd/ledger/stores": {[]string{
		"domain", "events", "events/embedded", "events/embedded/backup", "events/embedded/storedir", "events/eventstoredb", "projections", "projections/publish", "registry/outputs",
		"registry/outputs/remote", "runner", "runner/engine", "runner/engine/shared", "cmd/ledger/fault", "cmd/ledger/render",
	}, []string{"golang.org/x/sys"}},
	"cmd/ledger/serve": {[]string{
		"domain", "events", "events/embedded", "events/embedded/storedir", "events/eventstoredb/server", "events/eventstoredb/server/auth", "events/eventstoredb/server/conns",
		"projections/publish", "registry", "registry/outputs", "registry/outputs/remote", "runner", "runner/engine/shared",
		"cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/prometheus/client_golang"}},
	"cmd/ledger/sessions": {[]string{
		"domain", "events", "projections", "projections/conversation", "registry", "registry/outputs", "registry/outputs/remote",
		"builtins", "builtins/lsp", "builtins/permission", "builtins/sessiontools", "builtins/skills", "builtins/web", "builtins/workspace", "runner", "runner/agents", "runner/engine", "runner/plugins", "runner/plugins/mcp", "runner/plugins/toolfiles", "runner/providers/script", "runner/versioncontrol",
		"cmd/ledger/fault", "cmd/ledger/promptline", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/charmbracelet/x"}},
	"cmd/ledger/promptline": {nil, []string{"github.com/charmbracelet/x", "golang.org/x/sys"}},
	"cmd/ledger/models": {[]string{
		"projections/conversation", "runner", "runner/providers/anthropic", "runner/providers/modelapi", "runner/providers/openai", "cmd/ledger/fault",
	}, []string{"github.com/BurntSushi/toml"}},
	"cmd/ledger/demo": {[]string{
		"domain", "events", "projections", "projections/calls", "projections/conversation", "registry", "builtins/permission", "runner", "runner/agents",
		"runner/providers/providerstest", "runner/providers/script", "cmd/ledger/models", "cmd/ledger/render", "cmd/ledger/sessions", "cmd/ledger/stores", "cmd/ledger/verify",
	}, []string{"golang.org/x/sys"}},
	"cmd/ledger/receipts": {[]string{
		"domain", "events", "projections/calls", "registry/outputs", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/go-json-experiment/json"}},
	"cmd/ledger/resumable": {nil, []string{"github.com/klauspost/compress"}},
	"cmd/ledger/tables": {[]string{
		"domain", "events", "projections/calls", "projections/index",
		"cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render", "cmd/ledger/resumable", "cmd/ledger/stores", "cmd/ledger/views",
	}, []string{"github.com/parquet-go/parquet-go"}},
	"cmd/ledger/storefile": {[]string{
		"domain", "events", "projections/spill", "registry/outputs", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/resumable", "cmd/ledger/storecopy", "cmd/ledger/stores",
	}, []string{"github.com/klauspost/compress"}},
	"cmd/ledger/indexing":  {[]string{"events", "projections/index", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores"}, nil},
	"cmd/ledger/redaction": {nil, []string{"github.com/go-json-experiment/json"}},
	"cmd/ledger/sessionexport": {[]string{
		"domain", "events", "projections/calls", "projections/index", "projections/timeline", "cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/redaction",
		"cmd/ledger/render", "cmd/ledger/stores", "cmd/ledger/views",
	}, []string{"github.com/aymanbagabas/go-udiff"}},
	"cmd/ledger/importer":   {[]string{"domain", "events/transcripts", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores"}, nil},
	"cmd/ledger/publishing": {[]string{"domain", "events", "projections/publish", "projections/publish/jetstream", "projections/publish/jsonl", "cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render", "cmd/ledger/stores", "cmd/ledger/views"}, nil},
	"cmd/ledger/doctor": {[]string{
		"domain", "events", "events/eventstoredb", "runner", "runner/engine/shared",
		"cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, nil},
	"cmd/ledger/verify": {[]string{
		"domain", "events", "events/eventstoredb", "projections/calls", "projections/index", "projections/spill", "registry/outputs", "registry/outputs/remote",
		"cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, nil},
	"cmd/ledger/replaying": {[]string{
		"domain", "events", "events/embedded", "projections", "projections/conversation", "projections/index", "registry", "registry/outputs", "builtins/permission", "runner", "runner/replay",
		"cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render", "cmd/ledger/sessions", "cmd/ledger/stores",
	}, nil},
	"cmd/ledger/storecopy": {[]string{
		"events", "projections/spill", "registry/outputs", "domain", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, nil},
	"cmd/ledger/maintenance": {[]string{
		"events", "events/embedded", "events/embedded/backup", "events/embedded/integrity", "events/embedded/storedir", "projections", "registry/outputs", "runner", "runner/engine", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, nil},
	"cmd/ledger/statistics": {[]string{"domain", "events", "projections/index", "cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render"}, []string{"github.com/BurntSushi/toml"}},
	"cmd/ledger/player": {[]string{
		"domain", "events", "projections/calls", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/views",
	}, []string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x"}},
	"cmd/ledger/sessiondiff": {[]string{
		"domain", "events", "projections/calls", "projections/comparison", "projections/index", "projections/timeline", "cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/aymanbagabas/go-udiff"}},
	"cmd/ledger/query": {[]string{
		"domain", "events", "projections/calls", "projections/index", "projections/index/where", "runner/engine", "cmd/ledger/fault", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/spf13/cobra"}},
	"cmd/ledger/views": {[]string{
		"domain", "events", "projections/calls", "projections/catalog", "projections/conversation", "projections/index", "projections/staleness", "projections/timeline", "registry/outputs/remote", "runner/agents", "runner/engine", "cmd/ledger/fault", "cmd/ledger/query", "cmd/ledger/render", "cmd/ledger/stores",
	}, []string{"github.com/aymanbagabas/go-udiff", "github.com/charmbracelet/x", "github.com/go-json-experiment/json"}},
	"cmd/ledger":                    {[]string{"*"}, []string{"github.com/spf13/cobra", "github.com/charmbracelet/x", "github.com/go-json-experiment/json", "golang.org/x/term"}},
	"projections/publish":           {[]string{"domain", "events", "projections"}, []string{"github.com/ThreeDotsLabs/watermill", "github.com/BurntSushi/toml", "github.com/cenkalti/backoff/v5", "golang.org/x/sync"}},
	"projections/publish/bus":       {[]string{"domain", "events", "projections"}, []string{"github.com/ThreeDotsLabs/watermill", "github.com/cenkalti/backoff/v5"}},
	"projections/publish/jetstream": {[]string{"projections/publish"}, []string{"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats", "github.com/nats-io/nats.go"}},
	"projections/publish/jsonl":     {[]string{"domain", "events", "projections/publish"}, []string{"github.com/ThreeDotsLabs/watermill"}},
	"events/eventstoredb": {[]string{"events", "events/eventstoredb/mapping"}, []string{
		"github.com/EventStore/EventStore-Client-Go/v4", "github.com/cenkalti/backoff/v5", "google.golang.org/grpc",
	}},
	"events/eventstoredb/mapping":    {[]string{"domain", "events"}, nil},
	"events/eventstoredb/clients":    {nil, nil},
	"events/eventstoredb/clientrace": {nil, nil},
	"events/eventstoredb/server": {[]string{"domain", "events", "events/eventstoredb/mapping", "events/eventstoredb/server/auth", "events/eventstoredb/server/conns", "events/eventstoredb/server/groups"}, []string{
		"github.com/EventStore/EventStore-Client-Go/v4/protos", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		"github.com/google/uuid",
	}},
	"events/eventstoredb/server/auth":   {[]string{"events/eventstoredb/server/conns"}, []string{"golang.org/x/crypto/bcrypt"}},
	"events/eventstoredb/server/conns":  {nil, nil},
	"events/eventstoredb/server/groups": {[]string{"domain", "events"}, nil},
}

// A listedPackage is one package in the JSON output of go list.
type listedPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Standard   bool
	Doc        string
}

// packages returns every package of the module, as go list describes it. Imports of
// test files are not included.
func packages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Doc", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listedPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// Each package imports only the packages that its rule allows, and each rule belongs to a
// package.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rule, ok := importRules[name]
		if !ok {
			t.Errorf("package %s has no import rule: add one to importRules, or move the package", name)
			continue
		}
		seen[name] = true
		for _, imported := range p.Imports {
			if err := rule.allows(imported); err != nil {
				t.Errorf("%s imports %s: %v", name, imported, err)
			}
		}
	}
	for name := range importRules {
		if !seen[name] {
			t.Errorf("importRules has a rule for %s, and there is no such package", name)
		}
	}
}

// modelSDKs are the SDKs of model providers and of MCP, and sdkUsers the packages that
// link them. Every other package outside the command is free of them.
var (
	modelSDKs = []string{"github.com/anthropics/anthropic-sdk-go", "github.com/openai/openai-go/v3", "github.com/modelcontextprotocol/go-sdk"}
	sdkUsers  = []string{"runner/providers/anthropic", "runner/providers/openai", "runner/plugins/mcp", "runner/plugins/mcp/transport"}
)

// A package that programs embed links no SDK of a model provider or of MCP, unless it is the
// package for that.
func TestEmbeddersLinkNoSDK(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[strings.TrimPrefix(p.ImportPath, module+"/")] = p.Imports
	}
	// linked returns the SDKs that a package links.
	var linked func(name string, seen map[string]bool) []string
	linked = func(name string, seen map[string]bool) (sdks []string) {
		for _, imported := range imports[name] {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok && !seen[own] {
				seen[own] = true
				sdks = append(sdks, linked(own, seen)...)
			}
			for _, sdk := range modelSDKs {
				if imported == sdk || strings.HasPrefix(imported, sdk+"/") {
					sdks = append(sdks, sdk)
				}
			}
		}
		return sdks
	}
	for name := range imports {
		if name == "cmd/ledger" || strings.HasPrefix(name, "cmd/ledger/") {
			continue
		}
		if sdks := linked(name, map[string]bool{}); (len(sdks) > 0) != slices.Contains(sdkUsers, name) {
			t.Errorf("package %s links %v, and only %v link SDKs", name, sdks, sdkUsers)
		}
	}
}

// allows returns nil if the rule allows an import path, and otherwise an error that lists
// the allowed paths.
func (r importRule) allows(imported string) error {
	if own, ok := strings.CutPrefix(imported, module+"/"); ok {
		if slices.Contains(r.imports, own) || slices.Contains(r.imports, "*") {
			return nil
		}
		return fmt.Errorf("it may import %v of this module", r.imports)
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") {
		return nil // the standard library
	}
	for _, used := range r.uses {
		if imported == used || strings.HasPrefix(imported, used+"/") {
			return nil
		}
	}
	return fmt.Errorf("it may use %v of others", r.uses)
}

// Each package comment begins with "Package NAME ", or with "Command ledger " or
// "Ledger " for the command.
func TestEachPackageSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := filepath.Base(p.ImportPath)
		want := "Package " + name + " "
		if name == "ledger" {
			want = "Command ledger "
		}
		if !strings.HasPrefix(p.Doc, want) && !strings.HasPrefix(p.Doc, strings.Replace(want, "Command ledger", "Ledger", 1)) {
			t.Errorf("the doc of %s begins with %q, want %q", p.ImportPath, p.Doc, want)
		}
	}
}

// No two error sentinels of the module share a text, so that an error message
// identifies its sentinel.
func TestNoTwoSentinelsShareAText(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for sentinel, text := range sentinels(file) {
				sentinel = p.ImportPath + "." + sentinel
				if other, ok := found[text]; ok {
					t.Errorf("%s and %s share the text %q", sentinel, other, text)
				}
				found[text] = sentinel
			}
		}
	}
	if len(found) < 20 {
		t.Fatalf("found %d sentinels, want those of the module", len(found)) // the search itself is broken
	}
}

// sentinels returns the text of each package variable of a file that is set by a New
// function with one string literal, by the name of the variable.
func sentinels(file *ast.File) map[string]string {
	found := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			for i, v := range value.Values {
				call, ok := v.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					continue
				}
				selector, isSelector := call.Fun.(*ast.SelectorExpr)
				literal, isLiteral := call.Args[0].(*ast.BasicLit)
				if isSelector && isLiteral && selector.Sel.Name == "New" {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						found[value.Names[i].Name] = text
					}
				}
			}
		}
	}
	return found
}

// forbidden lists suffixes that describe no responsibility. No exported type name may
// end with one.
var forbidden = []string{"Manager", "Service", "Handler", "Helper", "Util", "Impl"}

// No exported type of the module has a name that ends with a forbidden suffix.
func TestNoTypeIsNamedForNothing(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				for _, word := range forbidden {
					if strings.HasSuffix(spec.Name.Name, word) {
						t.Errorf("%s: type %s says nothing: name the thing", path, spec.Name.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
