package transcripts

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the driver of opencode.db
)

// OpencodeStorage returns the folder storage in a data folder of opencode, or dir
// itself if it is that folder. The result is "" if dir is neither.
func OpencodeStorage(dir string) string {
	for _, storage := range []string{filepath.Join(dir, "storage"), dir} {
		if info, err := os.Stat(filepath.Join(storage, "session")); err == nil && info.IsDir() {
			if _, err := os.Stat(filepath.Join(storage, "message")); err == nil {
				return storage
			}
		}
	}
	return ""
}

// readOpencodeStorage reads the storage folder of opencode: a file for each session,
// message and part. It does not follow links out of the folder.
func readOpencodeStorage(ctx context.Context, dir string) (*Transcript, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	defer root.Close()
	f := newSessionFile(dir, opencode)
	o := newOpencodeReader(f)
	f.recognized = true
	sessions, err := jsonFiles(root, "session", 2)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	for _, name := range sessions {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		var info opencodeInfo
		if !o.decodeFile(root, name, &info) || info.ID == "" {
			continue
		}
		o.readInfo(info)
		messages, err := jsonFiles(root, path.Join("message", path.Base(string(info.ID))), 1)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		for _, name := range messages {
			var message json.RawMessage
			if !o.decodeFile(root, name, &message) {
				continue
			}
			parts, err := o.partFiles(root, strings.TrimSuffix(path.Base(name), ".json"))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", dir, err)
			}
			o.readMessage(message, parts)
		}
	}
	return f.finish()
}

// partFiles returns the parts of a message.
func (o *opencodeReader) partFiles(root *os.Root, message string) (parts []json.RawMessage, err error) {
	names, err := jsonFiles(root, path.Join("part", message), 1)
	for _, name := range names {
		var part json.RawMessage
		if o.decodeFile(root, name, &part) {
			parts = append(parts, part)
		}
	}
	return parts, err
}

// jsonFiles returns the files *.json in a folder and to a depth below it, by name. The
// IDs of opencode are in the order of time. A missing folder has no files.
func jsonFiles(root *os.Root, dir string, depth int) (names []string, err error) {
	err = fs.WalkDir(root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && strings.Count(strings.TrimPrefix(name, dir), "/") >= depth:
			return fs.SkipDir
		case entry.Type().IsRegular() && path.Ext(name) == ".json":
			names = append(names, name)
		}
		return nil
	})
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return names, err
}

// decodeFile decodes a file of the storage folder. It refuses a file that is too long
// or not JSON.
func (o *opencodeReader) decodeFile(root *os.Root, name string, into any) bool {
	file, err := root.Open(name)
	if err != nil {
		o.f.refuse("%s: %v", name, err)
		return false
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxLine+1))
	if err == nil && len(data) > maxLine {
		err = errLong
	}
	if _, isSyntax := errors.AsType[*json.SyntaxError](err); err == nil && !isSyntax {
		if syntax, is := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(strings.ToValidUTF8(string(data), "\uFFFD")), into)); is {
			err = syntax
		}
	}
	if err != nil {
		o.f.refuse("%s: %v", name, err)
		return false
	}
	return true
}

// readOpencodeDatabase reads the database opencode.db. It writes nothing beside it: a
// database with a write-ahead log is read from a private copy, and any other one as
// immutable.
func readOpencodeDatabase(ctx context.Context, name string) (*Transcript, error) {
	file, remove, err := stableDatabase(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer remove()
	full, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	query := "immutable=1&mode=ro"
	if file != name {
		query = "mode=rw"
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: full, RawQuery: query}).String())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer db.Close()
	f := newSessionFile(name, opencode)
	f.head = []byte("SQLite format 3")
	if err := newOpencodeReader(f).readDatabase(ctx, db); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return f.finish()
}

// maxCopies is the number of attempts to copy a database that changes meanwhile.
const maxCopies = 5

// stableDatabase returns the path of a database that no program changes: name itself,
// or a copy of it and of its write-ahead log. The caller calls remove at the end.
func stableDatabase(name string) (file string, remove func(), err error) {
	nothing := func() {}
	if wal, err := os.Stat(name + "-wal"); err != nil || wal.Size() == 0 {
		return name, nothing, nil
	}
	dir, err := os.MkdirTemp("", "ledger-opencode-")
	if err != nil {
		return "", nothing, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file = filepath.Join(dir, "opencode.db")
	for range maxCopies {
		before := stamps(name)
		for _, suffix := range []string{"", "-wal"} {
			if err := copyFile(file+suffix, name+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				remove()
				return "", nothing, err
			}
		}
		if before == stamps(name) {
			return file, remove, nil
		}
	}
	remove()
	return "", nothing, errors.New("its program writes to it all the time; end the program and import again")
}

// stamps describes the sizes and times of a database and its log.
func stamps(name string) string {
	var all strings.Builder
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(name + suffix); err == nil {
			fmt.Fprintln(&all, info.Size(), info.ModTime())
		}
	}
	return all.String()
}

// copyFile copies a file.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// columns returns the names of the columns of a table, in lower case.
func columns(ctx context.Context, db *sql.DB, table string) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT lower(name) FROM pragma_table_info(?)", table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, rows.Err()
}

// readDatabase reads all sessions of a database. The table event repeats them.
func (o *opencodeReader) readDatabase(ctx context.Context, db *sql.DB) error {
	for table, needed := range map[string][]string{
		"session": {"id", "time_created"}, "message": {"id", "session_id", "data"}, "part": {"id", "message_id", "data"},
	} {
		have, err := columns(ctx, db, table)
		if err != nil {
			return err
		}
		for _, name := range needed {
			if !slices.Contains(have, name) {
				return fmt.Errorf("%w: a database without the column %s of the table %s; expected the database opencode.db", ErrForeign, name, table)
			}
		}
	}
	o.f.recognized = true
	sessions, err := o.databaseSessions(ctx, db)
	if err != nil {
		return err
	}
	for _, info := range sessions {
		o.readInfo(info)
		if err := o.databaseMessages(ctx, db, string(info.ID)); err != nil {
			return err
		}
	}
	return nil
}

// databaseSessions returns the sessions of a database. Versions differ in the columns.
func (o *opencodeReader) databaseSessions(ctx context.Context, db *sql.DB) (all []opencodeInfo, err error) {
	have, err := columns(ctx, db, "session")
	if err != nil {
		return nil, err
	}
	list := []string{"id", "time_created"}
	for _, name := range []string{"parent_id", "directory", "version", "agent", "revert"} {
		if !slices.Contains(have, name) {
			name = "NULL"
		}
		list = append(list, name)
	}
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(list, ", ")+" FROM session ORDER BY time_created, id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, directory, version, agent, revert sql.NullString
		var created sql.NullInt64
		if err := rows.Scan(&id, &created, &parent, &directory, &version, &agent, &revert); err != nil {
			return nil, err
		}
		info := opencodeInfo{
			ID: jsonText(id.String), Parent: jsonText(parent.String), Directory: jsonText(directory.String), Version: jsonText(version.String), Agent: jsonText(agent.String),
		}
		info.Time.Created = jsonUint(max(0, created.Int64))
		decodeLenient(json.RawMessage(revert.String), &info.Revert)
		all = append(all, info)
	}
	return all, rows.Err()
}

// databaseMessages reads the messages of a session with their parts.
func (o *opencodeReader) databaseMessages(ctx context.Context, db *sql.DB, session string) error {
	rows, err := db.QueryContext(ctx, "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", session)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		parts, err := databaseParts(ctx, db, id)
		if err != nil {
			return err
		}
		// The ID of the message is a column of its own.
		members := map[string]json.RawMessage{}
		if json.Unmarshal(data, &members) != nil {
			o.f.line++
			o.f.refuse("message %s is not a JSON object", truncate(id, maxKind))
			continue
		}
		members["id"], _ = json.Marshal(id)
		whole, err := json.Marshal(members)
		if err != nil {
			return err
		}
		o.readMessage(whole, parts)
	}
	return rows.Err()
}

// databaseParts returns the parts of a message.
func databaseParts(ctx context.Context, db *sql.DB, message string) (parts []json.RawMessage, err error) {
	rows, err := db.QueryContext(ctx, "SELECT data FROM part WHERE message_id = ? ORDER BY id", message)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, err
		}
		parts = append(parts, data)
	}
	return parts, rows.Err()
}
