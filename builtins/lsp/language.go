package lsp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A language is a row of the table of languages.
type language struct {
	name string
	// ids maps a file extension to the language identifier of the protocol.
	ids map[string]string
	// programs are the servers of the language in order of preference.
	programs []serverProgram
	// manifests are the names of further files that a server of the language reads.
	manifests []string
}

// A serverProgram is the command of a language server.
type serverProgram struct {
	name    string
	args    []string
	options json.RawMessage // initializationOptions and the reply to workspace/configuration; nil: null
}

// languages is the table of languages. A file extension occurs once.
var languages = []*language{
	{
		name:      "Go",
		ids:       map[string]string{".go": "go"},
		programs:  []serverProgram{{name: "gopls", options: json.RawMessage(`{"pullDiagnostics":true}`)}},
		manifests: []string{"go.mod", "go.sum", "go.work"},
	},
	{
		name: "TypeScript and JavaScript",
		ids: map[string]string{
			".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "typescriptreact",
			".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascriptreact",
		},
		programs:  []serverProgram{{name: "typescript-language-server", args: []string{"--stdio"}}},
		manifests: []string{"package.json", "tsconfig.json", "jsconfig.json"},
	},
	{
		name:      "Python",
		ids:       map[string]string{".py": "python", ".pyi": "python"},
		programs:  []serverProgram{{name: "pyright-langserver", args: []string{"--stdio"}}, {name: "pylsp"}},
		manifests: []string{"pyproject.toml", "pyrightconfig.json", "setup.cfg"},
	},
	{
		name:      "Rust",
		ids:       map[string]string{".rs": "rust"},
		programs:  []serverProgram{{name: "rust-analyzer"}},
		manifests: []string{"Cargo.toml", "Cargo.lock"},
	},
	{
		name:      "C and C++",
		ids:       map[string]string{".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp", ".hpp": "cpp"},
		programs:  []serverProgram{{name: "clangd"}},
		manifests: []string{"compile_commands.json", "compile_flags.txt"},
	},
}

// languageOf returns the language of a file, or nil if the table has none.
func languageOf(path string) *language {
	extension := filepath.Ext(path)
	for _, l := range languages {
		if l.ids[extension] != "" {
			return l
		}
	}
	return nil
}

// reads reports whether a server of the language reads files of this name.
func (l *language) reads(name string) bool {
	return l.ids[filepath.Ext(name)] != "" || slices.Contains(l.manifests, name)
}

// programNames returns the names of the servers of the language, for a person.
func (l *language) programNames() string {
	var names []string
	for _, p := range l.programs {
		names = append(names, p.name)
	}
	return strings.Join(names, " or ")
}

// knownExtensions returns every file extension of the table, sorted.
func knownExtensions() string {
	var all []string
	for _, l := range languages {
		for extension := range l.ids {
			all = append(all, extension)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// serverNeed returns the condition of availability of the tool: one of the servers of the
// table is in PATH.
func serverNeed() string {
	var names []string
	for _, l := range languages {
		for _, p := range l.programs {
			names = append(names, p.name)
		}
	}
	return "program:" + strings.Join(names, "|")
}

// installed returns the first server of the language that is in the PATH of an
// environment, and its path. The path is empty if no server is installed.
func (l *language) installed(environment []string) (serverProgram, string) {
	for _, p := range l.programs {
		if path := lookUp(p.name, environment); path != "" {
			return p, path
		}
	}
	return serverProgram{}, ""
}

// lookUp returns the absolute path of a program in the PATH of an environment, or an empty
// path. The last PATH counts. Relative directories are skipped, because they could lead
// into the workspace.
func lookUp(name string, environment []string) string {
	search := ""
	for _, variable := range environment {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			search = value
		}
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
