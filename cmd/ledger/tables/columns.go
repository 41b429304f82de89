package tables

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// A column is a column of a table, which a field of its row defines. The name is in the tag
// parquet. The tag form of a text says that it is JSON.
type column struct {
	name  string
	field int
	json  bool // the text is a JSON value
}

// columnsOf returns the columns of a type of rows, in order.
func columnsOf(row reflect.Type) []column {
	all := make([]column, row.NumField())
	for i := range all {
		f := row.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		all[i] = column{name, i, f.Tag.Get("form") == "json"}
	}
	return all
}

// value returns the value of a field, or nil if it is a nil pointer.
func value(field reflect.Value) any {
	if field.Kind() == reflect.Pointer {
		if field.IsNil() {
			return nil
		}
		field = field.Elem()
	}
	return field.Interface()
}

// appendJSON appends a row as an object on one line.
func appendJSON(b []byte, columns []column, row reflect.Value) ([]byte, error) {
	for i, c := range columns {
		if b = append(b, ','); i == 0 {
			b[len(b)-1] = '{'
		}
		b = append(strconv.AppendQuote(b, c.name), ':')
		switch v := value(row.Field(c.field)).(type) {
		case nil:
			b = append(b, "null"...)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = strconv.AppendBool(b, v)
		case time.Time:
			b = append(append(append(b, '"'), render.Timestamp(v).String()...), '"')
		default:
			var text json.RawMessage
			var err error
			if s, ok := v.(string); ok && c.json {
				text, err = onOneLine(render.RawJSON([]byte(s)))
			} else {
				text, err = render.EncodeJSON(v)
			}
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
		}
	}
	return append(b, "}\n"...), nil
}

// onOneLine returns a JSON value without white space between its parts if it has a line end,
// and unchanged otherwise.
func onOneLine(v json.RawMessage) (json.RawMessage, error) {
	if !bytes.ContainsAny(v, "\n\r") {
		return v, nil
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, v)
	return compact.Bytes(), err
}

// appendHead appends the first line of a CSV file, by RFC 4180.
func appendHead(b []byte, columns []column) []byte {
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, c.name...)
	}
	return append(b, "\r\n"...)
}

// appendCSV appends a row of a CSV file, by RFC 4180: a null is an empty cell, and the empty
// text a pair of quotes.
func appendCSV(b []byte, columns []column, row reflect.Value) ([]byte, error) {
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := value(row.Field(c.field)).(type) {
		case nil:
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = strconv.AppendBool(b, v)
		case time.Time:
			b = append(b, render.Timestamp(v).String()...)
		case string:
			b = appendCell(b, v)
		default:
			text, err := render.EncodeJSON(v)
			if err != nil {
				return nil, err
			}
			b = appendCell(b, string(text))
		}
	}
	return append(b, "\r\n"...), nil
}

// formulaMarks are the characters by which spreadsheets take a cell for a formula or drop the
// beginning of a text, and the apostrophe, so that a cell that begins with one always has one
// more than its text.
const formulaMarks = "'=+-@\t\r\n＝＋－＠"

// appendCell appends a text as a cell in quotes. A text that begins with one of formulaMarks gets
// an apostrophe in front.
func appendCell(b []byte, text string) []byte {
	b = append(b, '"')
	if first, _ := utf8.DecodeRuneInString(text); text != "" && strings.ContainsRune(formulaMarks, first) {
		b = append(b, '\'')
	}
	b = append(b, strings.ReplaceAll(text, `"`, `""`)...)
	return append(b, '"')
}
