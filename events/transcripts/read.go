package transcripts

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Read reads a file of a format of [Formats] to its end: see [ReadClaudeCode],
// [ReadCodex], [ReadOpencode] and [ReadATIF]. It panics for another format.
func Read(format, name string, r io.Reader) (*Transcript, error) {
	switch format {
	case claudeCode:
		return ReadClaudeCode(name, r)
	case codex:
		return ReadCodex(name, r)
	case atif:
		return ReadATIF(name, r)
	}
	panic(fmt.Sprintf("transcripts: unknown format %q", format))
}

// ReadPath reads the file at path as [Read] does.
func ReadPath(ctx context.Context, format, path string) (*Transcript, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	return Read(format, path, file)
}
