package sessionexport

import (
	"encoding/json"
	"reflect"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
)

// redacted returns a copy of a value with the secrets in all its texts hidden: in strings
// and JSON, also below pointers, slices, maps and interfaces. Fields named Person have the
// name of a person, and fields named Host that of a machine. Media keep their bytes. With a
// nil Redactor it returns the value itself.
func redacted[T any](r *redaction.Redactor, value T) T {
	if r == nil {
		return value
	}
	return hidden(r, reflect.ValueOf(&value).Elem(), "").Interface().(T)
}

// The types that are not redacted as their kind.
var (
	rawType   = reflect.TypeFor[json.RawMessage]()
	mediaType = reflect.TypeFor[domain.Media]()
)

// hidden returns a redacted copy of the value of a field.
func hidden(r *redaction.Redactor, v reflect.Value, field string) reflect.Value {
	copied := reflect.New(v.Type()).Elem()
	copied.Set(v)
	switch {
	case v.Type() == rawType:
		copied.SetBytes(r.JSON(v.Bytes()))
		return copied
	case v.Type() == mediaType:
		copied.FieldByName("Name").SetString(r.Text(v.FieldByName("Name").String()))
		return copied
	}
	switch v.Kind() {
	case reflect.String:
		copied.SetString(hiddenText(r, v.String(), field))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				copied.Field(i).Set(hidden(r, v.Field(i), f.Name))
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			below := hidden(r, v.Elem(), field)
			if v.Kind() == reflect.Pointer {
				to := reflect.New(v.Type().Elem())
				to.Elem().Set(below)
				below = to
			}
			copied.Set(below)
		}
	case reflect.Slice:
		if !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
			copied.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				copied.Index(i).Set(hidden(r, v.Index(i), field))
			}
		}
	}
	return copied
}

// hiddenText returns the redacted text of a field.
func hiddenText(r *redaction.Redactor, text, field string) string {
	switch field {
	case "Person":
		return r.User(text)
	case "Host":
		return r.Host(text)
	}
	return r.Text(text)
}
