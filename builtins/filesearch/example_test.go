package filesearch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/builtins/filesearch"
	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// The Go files that no ignore file excludes are searched for a word.
func Example() {
	if err := searchForWord(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// main.go:2: // needle
}

// searchForWord makes a workspace, searches it and prints the matches.
func searchForWord() error {
	dir, err := os.MkdirTemp("", "filesearch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, content := range map[string]string{"main.go": "package main\n// needle\n", "made.go": "// needle\n", "note.txt": "needle\n", ".gitignore": "made.go\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	root, err := workspace.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	target, err := root.Resolve(".")
	if err != nil {
		return err
	}
	handle, err := target.Acquire()
	if err != nil {
		return err
	}
	defer handle.Close()
	ctx := context.Background()
	listed, listErr := filesearch.Lister{Root: root}.List(ctx, handle, "")
	pattern, patternErr := filesearch.ParseGlob("*.go")
	word, wordErr := filesearch.CompileExpression(`\bneedle\b`)
	tree, treeErr := handle.Tree()
	if err := errors.Join(listErr, patternErr, wordErr, treeErr); err != nil {
		return err
	}
	defer tree.Close()
	lines := filesearch.NewLineScanner(word, 10, 1<<20)
	for _, name := range listed.Files {
		if pattern.Matches(name) {
			if err := lines.ScanNamed(ctx, tree, name, name); err != nil {
				return err
			}
		}
	}
	for _, m := range lines.Matches {
		fmt.Printf("%s:%d: %s\n", m.Path, m.Line, m.Text)
	}
	return nil
}
