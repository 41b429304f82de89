package index

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// A sqliteError is an error of SQLite.
type sqliteError struct {
	code int // the extended result code
	text string
}

// Error returns the text of SQLite, with the code as the driver writes it.
func (e *sqliteError) Error() string { return e.text }

// A database is a connection. One goroutine uses it. It calls SQLite without a driver,
// which allocates and frees each text that it binds, and takes as much time as SQLite
// itself for small rows.
type database struct {
	tls       *libc.TLS
	handle    uintptr // a sqlite3
	prepared  map[string]*statement
	inserters []*inserter
}

// A mode is how connect opens a database.
type mode int32

const (
	readOnly mode = sqlite3.SQLITE_OPEN_READONLY
	writing  mode = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE // makes the file if it is absent
	inMemory mode = writing | sqlite3.SQLITE_OPEN_MEMORY
)

// connect opens the file at path, with pragmas in order.
func connect(path string, how mode, pragmas []string) (*database, error) {
	d := &database{tls: libc.NewTLS(), prepared: map[string]*statement{}}
	err := d.open(path, how)
	for _, p := range pragmas {
		if err == nil {
			err = d.script("PRAGMA " + p)
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// open opens the file at path. The caller closes d also after an error.
func (d *database) open(path string, how mode) error {
	name, err := libc.CString(path)
	if err != nil {
		return err
	}
	defer libc.Xfree(d.tls, name)
	var code int32
	d.handle, err = d.result(func(to uintptr) int32 {
		code = sqlite3.Xsqlite3_open_v2(d.tls, name, to, int32(how)|sqlite3.SQLITE_OPEN_NOMUTEX, 0)
		return code
	})
	if err == nil {
		err = d.failed(code)
	}
	if err == nil {
		sqlite3.Xsqlite3_extended_result_codes(d.tls, d.handle, 1)
	}
	return err
}

// result passes the place of a pointer to call, which writes one there, and returns it.
func (d *database) result(call func(to uintptr) int32) (uintptr, error) {
	place := sqlite3.Xsqlite3_malloc(d.tls, bits.UintSize/8)
	if place == 0 {
		return 0, d.failed(sqlite3.SQLITE_NOMEM)
	}
	defer sqlite3.Xsqlite3_free(d.tls, place)
	bytes := libc.GoBytes(place, bits.UintSize/8)
	clear(bytes)
	call(place)
	if bits.UintSize == 32 {
		return uintptr(binary.NativeEndian.Uint32(bytes)), nil
	}
	return uintptr(binary.NativeEndian.Uint64(bytes)), nil
}

// failed returns the error of a result code, or nil for SQLITE_OK.
func (d *database) failed(code int32) error {
	if code == sqlite3.SQLITE_OK {
		return nil
	}
	text := libc.GoString(sqlite3.Xsqlite3_errstr(d.tls, code))
	if d.handle != 0 {
		if detail := libc.GoString(sqlite3.Xsqlite3_errmsg(d.tls, d.handle)); detail != text {
			text += ": " + detail
		}
	}
	return classified(&sqliteError{int(code), fmt.Sprintf("%s (%d)", text, code)})
}

// close closes the connection. The last one to close copies the log of SQLite into the
// database.
func (d *database) close() error {
	for _, s := range d.prepared {
		sqlite3.Xsqlite3_finalize(d.tls, s.pointer)
		s.arguments.free(d)
	}
	for _, t := range d.inserters {
		t.arguments.free(d)
	}
	err := d.failed(sqlite3.Xsqlite3_close_v2(d.tls, d.handle))
	d.tls.Close()
	return err
}

// script executes SQL that is not prepared and has no arguments.
func (d *database) script(text string) error {
	sql, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(d.tls, sql)
	return d.failed(sqlite3.Xsqlite3_exec(d.tls, d.handle, sql, 0, 0, 0))
}

// A statement is a prepared statement, with the memory of its arguments.
type statement struct {
	pointer             uintptr // a sqlite3_stmt
	parameters, columns int
	arguments           arguments
}

// statement returns the prepared statement of a text.
func (d *database) statement(text string) (*statement, error) {
	if s, ok := d.prepared[text]; ok {
		return s, nil
	}
	sql, err := libc.CString(text)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(d.tls, sql)
	var code int32
	pointer, err := d.result(func(to uintptr) int32 {
		code = sqlite3.Xsqlite3_prepare_v3(d.tls, d.handle, sql, int32(len(text)), sqlite3.SQLITE_PREPARE_PERSISTENT, to, 0)
		return code
	})
	if err == nil {
		err = d.failed(code)
	}
	if err != nil {
		return nil, err
	}
	s := &statement{pointer: pointer}
	s.parameters, s.columns = int(sqlite3.Xsqlite3_bind_parameter_count(d.tls, pointer)), int(sqlite3.Xsqlite3_column_count(d.tls, pointer))
	d.prepared[text] = s
	return s, nil
}

// bind sets the parameters of a statement to values. SQLite reads their texts from memory,
// the memory of the arguments that contain them, until the next bind.
func (d *database) bind(s *statement, memory uintptr, values []argument) error {
	if len(values) < s.parameters {
		return fmt.Errorf("statement has %d parameters, and %d arguments", s.parameters, len(values))
	}
	for i, a := range values[:s.parameters] {
		var code int32
		switch a.kind {
		case sqlite3.SQLITE_NULL:
			code = sqlite3.Xsqlite3_bind_null(d.tls, s.pointer, int32(i+1))
		case sqlite3.SQLITE_INTEGER:
			code = sqlite3.Xsqlite3_bind_int64(d.tls, s.pointer, int32(i+1), a.number)
		default:
			code = sqlite3.Xsqlite3_bind_text(d.tls, s.pointer, int32(i+1), memory+uintptr(a.from), int32(a.to-a.from), 0)
		}
		if code != sqlite3.SQLITE_OK {
			return d.failed(code)
		}
	}
	return nil
}

// step runs a statement to its next row. It reports whether there is one.
func (d *database) step(s *statement) (bool, error) {
	switch code := sqlite3.Xsqlite3_step(d.tls, s.pointer); code {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, d.failed(code)
	}
}

// run executes a statement with values.
func (d *database) run(s *statement, memory uintptr, values []argument) error {
	err := d.bind(s, memory, values)
	if err == nil {
		_, err = d.step(s)
	}
	sqlite3.Xsqlite3_reset(d.tls, s.pointer) // repeats the error of step
	return err
}

// exec executes a statement and returns the number of changed rows. Absent values become
// null, as arguments.put says. Values beyond the last parameter are ignored.
func (d *database) exec(text string, args ...any) (int64, error) {
	s, err := d.statement(text)
	if err != nil {
		return 0, err
	}
	s.arguments.clear()
	if err = s.arguments.put(d, args...); err == nil {
		err = d.run(s, s.arguments.memory, s.arguments.values)
	}
	return int64(sqlite3.Xsqlite3_changes(d.tls, d.handle)), err
}

// execRow executes a statement whose parameters are the columns of a row.
func (d *database) execRow(text string, r row) error {
	s, err := d.statement(text)
	if err != nil {
		return err
	}
	s.arguments.clear()
	if err := r.put(d, &s.arguments); err != nil {
		return err
	}
	return d.run(s, s.arguments.memory, s.arguments.values)
}

// query executes a statement and passes each row to visit, which keeps no reference to
// it and does not execute the same statement.
func (d *database) query(visit func([]driver.Value) error, text string, args ...any) error {
	s, err := d.statement(text)
	if err != nil {
		return err
	}
	defer sqlite3.Xsqlite3_reset(d.tls, s.pointer) // repeats the error of step
	s.arguments.clear()
	err = s.arguments.put(d, args...)
	if err == nil {
		err = d.bind(s, s.arguments.memory, s.arguments.values)
	}
	if err != nil {
		return err
	}
	row := make([]driver.Value, s.columns)
	for {
		more, err := d.step(s)
		if err != nil || !more {
			return err
		}
		for i := range row {
			row[i] = d.column(s, int32(i))
		}
		if err := visit(row); err != nil {
			return err
		}
	}
}

// column returns a column of the current row: nil, an int64, a float64 or a string.
func (d *database) column(s *statement, i int32) driver.Value {
	switch sqlite3.Xsqlite3_column_type(d.tls, s.pointer, i) {
	case sqlite3.SQLITE_NULL:
		return nil
	case sqlite3.SQLITE_INTEGER:
		return int64(sqlite3.Xsqlite3_column_int64(d.tls, s.pointer, i))
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(d.tls, s.pointer, i)
	}
	text := sqlite3.Xsqlite3_column_text(d.tls, s.pointer, i)
	if text == 0 {
		return ""
	}
	return string(libc.GoBytes(text, int(sqlite3.Xsqlite3_column_bytes(d.tls, s.pointer, i))))
}

// number returns the first column of the first row as an integer, or 0 if there is no row
// or the column is null.
func (d *database) number(text string, args ...any) (n int64, err error) {
	err = d.query(func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	}, text, args...)
	return n, err
}
