package transcripts

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Read reads a file of a format of [Formats] to its end: see [ReadClaudeCode],
// [ReadCodex], [ReadOpencode] and [ReadATIF]. The file may be compressed with gzip or
// zstd; of a damaged or unfinished compression it reads the part before the damage, and
// the report says so. Read panics for another format.
func Read(format, name string, r io.Reader) (*Transcript, error) {
	plain, err := decompress(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer plain.Close()
	t, err := readPlain(format, name, plain)
	if err == nil && plain.damage != nil {
		t.Report.RefusedLines = append(t.Report.RefusedLines, RefusedLine{t.file.line + 1, fmt.Sprintf("torn: the compressed file is unfinished or damaged here: %v", plain.damage)})
	}
	return t, err
}

// readPlain reads a file that is not compressed.
func readPlain(format, name string, r io.Reader) (*Transcript, error) {
	switch format {
	case claudeCode:
		return ReadClaudeCode(name, r)
	case codex:
		return ReadCodex(name, r)
	case opencode:
		return ReadOpencode(name, r)
	case atif:
		return ReadATIF(name, r)
	}
	panic(fmt.Sprintf("transcripts: unknown format %q", format))
}

// ReadPath reads the file at path as [Read] does. For opencode the path may also be
// the database opencode.db, or the folder that [OpencodeStorage] returns.
func ReadPath(ctx context.Context, format, path string) (*Transcript, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	if format == opencode {
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return readOpencodeStorage(ctx, path)
		}
		if isDatabase(file) {
			return readOpencodeDatabase(ctx, path)
		}
	}
	return Read(format, path, file)
}

// isDatabase reports whether a file is an SQLite database.
func isDatabase(file io.ReaderAt) bool {
	var head [16]byte
	_, err := file.ReadAt(head[:], 0)
	return err == nil && string(head[:]) == "SQLite format 3\x00"
}
