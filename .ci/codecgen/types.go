package main

import (
	"errors"
	"fmt"
	"go/ast"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A shape is a way in which the codec encodes values.
type shape int

const (
	textShape        shape = iota + 1 // a string
	boolShape                         // true or false
	intShape                          // an int or int64
	rawShape                          // a json.RawMessage
	idShape                           // a domain.ID
	enumShape                         // a uint8 with a text for each value
	fingerprintShape                  // a domain.Fingerprint
	refShape                          // a domain.Ref
	listShape                         // a slice
	structShape                       // a struct
	stdlibShape                       // a type that the codec leaves to encoding/json
)

// A goType is the type of a field.
type goType struct {
	shape   shape
	name    string        // as package events spells it
	element string        // of a list or a struct: the function for one element
	fields  *structFields // of a struct, or of the elements of a list
	isZero  bool          // it has a method IsZero
	nilable bool          // its zero value is nil
}

// comparable reports whether Go can compare values of the type with ==.
func (t goType) comparable() bool {
	if t.shape == structShape {
		return !slices.ContainsFunc(t.fields.fields, func(f field) bool { return !f.typ.comparable() })
	}
	return !t.nilable
}

// structFields are the fields of a struct, in order.
type structFields struct {
	typ    string // as package events spells it
	name   string // the prefix of the names of its functions
	fields []field
	stdlib string // the required field that the codec does not support; empty: it supports the struct
	// split is true if other code calls the function for the fields, without
	// the braces of the object.
	split bool
}

// keys returns the JSON keys of the struct, with those of embedded structs.
func (s *structFields) keys() (keys []string) {
	for _, f := range s.fields {
		if f.embedded {
			keys = append(keys, f.typ.fields.keys()...)
		} else {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// A field is a field of a struct.
type field struct {
	name     string
	key      string // its JSON key
	option   string // of its JSON tag: omitempty, omitzero or empty
	intern   bool   // a decoder interns its values
	embedded bool   // its type is a struct whose fields are fields of this one
	typ      goType
}

// handwritten are the types of package domain that package events encodes with
// code of its own.
var handwritten = map[string]goType{
	"domain.Fingerprint": {shape: fingerprintShape},
	"domain.Ref":         {shape: refShape},
	"domain.Contents":    {shape: listShape, element: "contentElement", nilable: true},
}

// handwrittenElements are the structs of package domain for which package
// events has a function of its own in place of the generated one.
var handwrittenElements = map[string]string{"domain.Offered": "offeredElement"}

// extra are the structs of package events that are encoded and are no events.
var extra = []string{"metadata"}

// A model is all that the generated file is made from.
type model struct {
	events, domain *pkg
	kinds          []kindOfEvent
	extra          []*structFields
	known          map[string]*structFields // the structs by package and name
}

// A kindOfEvent is a line of the table with the struct that is encoded.
type kindOfEvent struct {
	tableLine
	fields *structFields
}

// load resolves the table of kinds and the types of all fields. It returns all
// errors that it finds, joined.
func load(events, domain *pkg) (*model, error) {
	m := &model{events: events, domain: domain, known: map[string]*structFields{}}
	lines, err := events.table()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, line := range lines {
		decl, ok := events.types[line.typ]
		if !ok {
			errs = append(errs, events.at(line.expr, "kind %s has no struct: declare type %s", line.kind, line.typ))
			continue
		}
		s, err := m.structOf(events, decl)
		if err == nil && line.packed != "" {
			if decl, ok = events.types[line.packed]; !ok {
				errs = append(errs, events.at(line.expr, "kind %s has no packed struct: declare type %s", line.kind, line.packed))
				continue
			}
			s, err = m.structOf(events, decl)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.split = true
		m.kinds = append(m.kinds, kindOfEvent{line, s})
	}
	for _, name := range extra {
		if decl, ok := events.types[name]; ok {
			s, err := m.structOf(events, decl)
			if err == nil && s.stdlib != "" {
				err = events.at(decl, "struct %s: field %s has a type that the codec does not support", name, s.stdlib)
			}
			errs = append(errs, err)
			m.extra = append(m.extra, s)
		}
	}
	return m, errors.Join(append(errs, m.unused())...)
}

// unused returns an error for each struct of package events that has JSON keys
// and that no event uses.
func (m *model) unused() error {
	var errs []error
	for _, name := range m.events.names {
		decl := m.events.types[name]
		body, ok := decl.Type.(*ast.StructType)
		if _, known := m.known[m.events.name+"."+name]; !ok || known {
			continue
		}
		if slices.ContainsFunc(body.Fields.List, func(f *ast.Field) bool { return tagOf(f).Get("json") != "" }) {
			errs = append(errs, m.events.at(decl, "struct %s has JSON keys, but neither a line in the table of kinds nor an event that uses it", name))
		}
	}
	return errors.Join(errs...)
}

// tagOf returns the tag of a field; it is empty for a field without one.
func tagOf(f *ast.Field) reflect.StructTag {
	if f.Tag == nil {
		return ""
	}
	text, _ := strconv.Unquote(f.Tag.Value) // the parser has checked it
	return reflect.StructTag(text)
}

// structOf resolves the fields of a struct. It records the struct before an
// error too, so that each struct is resolved once.
func (m *model) structOf(p *pkg, decl typeDecl) (*structFields, error) {
	name := decl.Name.Name
	if s, ok := m.known[p.name+"."+name]; ok {
		return s, nil
	}
	s := &structFields{typ: m.spelled(p, name), name: strings.ToLower(name[:1]) + name[1:]}
	for _, other := range m.known {
		if other.name == s.name {
			return s, p.at(decl, "structs %s and %s have one name: their functions would have one too", s.typ, other.typ)
		}
	}
	m.known[p.name+"."+name] = s
	body, ok := decl.Type.(*ast.StructType)
	if !ok {
		return s, p.at(decl, "%s is not a struct", name)
	}
	var errs []error
	for _, node := range body.Fields.List {
		names := []string{""}
		if len(node.Names) > 0 {
			names = names[:0]
			for _, id := range node.Names {
				names = append(names, id.Name)
			}
		}
		for _, one := range names {
			f, err := m.fieldOf(p, decl, one, node)
			if err != nil {
				errs = append(errs, p.at(node, "struct %s, field %s: %w", name, f.name, err))
				continue
			}
			s.fields = append(s.fields, f)
			if f.typ.shape == stdlibShape && f.option == "" {
				s.stdlib = f.name
			}
		}
	}
	keys := s.keys()
	for i, key := range keys {
		same := func(other string) bool { return strings.EqualFold(key, other) } // as encoding/json matches keys
		if slices.ContainsFunc(keys[:i], same) {
			errs = append(errs, p.at(decl, "struct %s has two fields with the JSON key %q", name, key))
		}
	}
	return s, errors.Join(errs...)
}

// spelled returns the name of a type as package events spells it.
func (m *model) spelled(p *pkg, name string) string {
	if p == m.events {
		return name
	}
	return p.name + "." + name
}

// fieldOf resolves one field of a struct; an embedded field has no name. It
// returns the name of the field with an error too.
func (m *model) fieldOf(p *pkg, decl typeDecl, name string, node *ast.Field) (f field, err error) {
	f.name = name
	if name == "" {
		return m.embeddedField(p, decl, node)
	}
	if !ast.IsExported(name) {
		return f, errors.New("encoding/json ignores an unexported field: export it")
	}
	tag := tagOf(node)
	options := strings.Split(tag.Get("json"), ",")
	f.key = options[0]
	if f.key == "" || strings.Trim(f.key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$") != "" {
		return f, fmt.Errorf("JSON key %q is not one of letters, digits and underscores: tag it `json:\"name\"`", f.key)
	}
	switch options = options[1:]; {
	case len(options) == 1 && (options[0] == "omitempty" || options[0] == "omitzero"):
		f.option = options[0]
	case len(options) > 0:
		return f, fmt.Errorf("options %q of the JSON tag are not supported: use omitempty or omitzero", strings.Join(options, ","))
	}
	if f.typ, err = m.typeOf(p, decl.imports, node.Type); err != nil {
		return f, err
	}
	switch with, ok := tag.Lookup("codec"); {
	case ok && with != "intern":
		return f, fmt.Errorf("codec tag %q is unknown: the only one is intern", with)
	case ok && f.typ.shape != textShape:
		return f, fmt.Errorf("codec tag intern is for strings, and %s is none", f.typ.name)
	case ok:
		f.intern = true
	}
	_, err = f.present()
	return f, err
}

// embeddedField resolves an embedded struct.
func (m *model) embeddedField(p *pkg, decl typeDecl, node *ast.Field) (f field, err error) {
	f.embedded = true
	switch x := node.Type.(type) {
	case *ast.Ident:
		f.name = x.Name
	case *ast.SelectorExpr:
		f.name = x.Sel.Name
	}
	if f.typ, err = m.typeOf(p, decl.imports, node.Type); err != nil {
		return f, err
	}
	if f.typ.shape != structShape || node.Tag != nil {
		return f, errors.New("an embedded field must be a struct without a tag")
	}
	f.typ.fields.split = true
	return f, nil
}

// typeOf resolves the type of a field in package p.
func (m *model) typeOf(p *pkg, imports map[string]string, expr ast.Expr) (goType, error) {
	switch x := expr.(type) {
	case *ast.Ident:
		return m.namedType(p, x.Name)
	case *ast.SelectorExpr:
		if q, ok := x.X.(*ast.Ident); ok {
			return m.importedType(imports[q.Name], x.Sel.Name)
		}
	case *ast.ArrayType:
		if x.Len == nil {
			return m.listType(p, imports, x.Elt)
		}
	case *ast.StarExpr:
		return goType{shape: stdlibShape, name: "pointer", nilable: true}, nil
	case *ast.MapType:
		return goType{shape: stdlibShape, name: "map", nilable: true}, nil
	}
	return goType{}, unknownType(exprText(expr))
}

// unknownType returns the error for a type that the generator does not know.
func unknownType(name string) error {
	return fmt.Errorf("type %s has no encoding in the codec: use another type, or add one to .ci/codecgen and events/codec.go", name)
}

// importedType resolves a type of another package.
func (m *model) importedType(path, name string) (goType, error) {
	switch {
	case path == "encoding/json" && name == "RawMessage":
		return goType{shape: rawShape, name: "json.RawMessage", nilable: true}, nil
	case path == "time" && name == "Time":
		return goType{shape: stdlibShape, name: "time.Time", isZero: true}, nil
	case strings.HasSuffix(path, "/domain"):
		return m.namedType(m.domain, name)
	}
	return goType{}, unknownType(path + "." + name)
}

// listType resolves a slice type.
func (m *model) listType(p *pkg, imports map[string]string, element ast.Expr) (goType, error) {
	t, err := m.typeOf(p, imports, element)
	if err != nil {
		return t, err
	}
	list := goType{shape: listShape, name: "[]" + t.name, nilable: true}
	switch t.shape {
	case textShape:
		list.element = "textElement"
	case structShape:
		list.element, list.fields = t.element, t.fields
	case stdlibShape:
		list.shape = stdlibShape
	default:
		return t, unknownType(list.name)
	}
	return list, nil
}

// namedType resolves a type by its name in a package.
func (m *model) namedType(p *pkg, name string) (goType, error) {
	spelled := m.spelled(p, name)
	if t, ok := handwritten[spelled]; ok {
		t.name, t.isZero = spelled, p.methods[name]["IsZero"]
		return t, nil
	}
	decl, ok := p.types[name]
	if !ok {
		return builtinType(name)
	}
	t, err := m.declaredType(p, decl)
	t.name = spelled
	t.isZero = t.isZero || p.methods[name]["IsZero"]
	return t, err
}

// builtinType resolves a type of the language.
func builtinType(name string) (goType, error) {
	shapes := map[string]shape{"string": textShape, "bool": boolShape, "int": intShape, "int64": intShape}
	if s, ok := shapes[name]; ok {
		return goType{shape: s, name: name}, nil
	}
	return goType{}, unknownType(name)
}

// declaredType resolves a type by its declaration.
func (m *model) declaredType(p *pkg, decl typeDecl) (goType, error) {
	name, methods := decl.Name.Name, p.methods[decl.Name.Name]
	underlying, _ := decl.Type.(*ast.Ident)
	switch generic, ok := decl.Type.(*ast.IndexExpr); {
	case ok && decl.Assign.IsValid() && p == m.domain && exprText(generic.X) == "ID":
		return goType{shape: idShape, isZero: true}, nil
	case decl.TypeParams != nil || decl.Assign.IsValid():
		return goType{}, unknownType(m.spelled(p, name))
	case underlying != nil && underlying.Name == "uint8" && methods["String"] && methods["MarshalText"] && methods["UnmarshalText"]:
		return goType{shape: enumShape}, nil
	case methods["MarshalJSON"] || methods["UnmarshalJSON"] || methods["MarshalText"] || methods["UnmarshalText"]:
		return goType{}, unknownType(m.spelled(p, name) + ", with JSON methods of its own,")
	}
	if _, ok := decl.Type.(*ast.StructType); ok {
		return m.structType(p, decl)
	}
	t, err := m.typeOf(p, decl.imports, decl.Type)
	if err == nil && (t.shape == boolShape || t.shape == rawShape) {
		return t, unknownType(m.spelled(p, name)) // the functions of the codec take bool and json.RawMessage only
	}
	t.isZero = false // a defined type does not inherit methods
	return t, err
}

// structType resolves a struct type that a field or a list holds.
func (m *model) structType(p *pkg, decl typeDecl) (goType, error) {
	s, err := m.structOf(p, decl)
	if err != nil {
		return goType{}, err
	}
	if s.stdlib != "" {
		return goType{shape: stdlibShape}, nil
	}
	t := goType{shape: structShape, element: s.name + "Element", fields: s}
	if own, ok := handwrittenElements[s.typ]; ok {
		t.element, s.split = own, true
	}
	t.isZero = slices.ContainsFunc(s.fields, func(f field) bool { return f.embedded && f.typ.isZero })
	return t, nil
}

// exprText returns a type expression as source text; short, for errors.
func exprText(expr ast.Expr) string {
	switch x := expr.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return exprText(x.X) + "." + x.Sel.Name
	case *ast.ArrayType:
		if x.Len == nil {
			return "[]" + exprText(x.Elt)
		}
		return "[n]" + exprText(x.Elt)
	case *ast.IndexExpr:
		return exprText(x.X) + "[…]"
	case *ast.StructType:
		return "struct{…}"
	case *ast.InterfaceType:
		return "interface{…}"
	case *ast.FuncType:
		return "func"
	case *ast.ChanType:
		return "chan"
	}
	return fmt.Sprintf("%T", expr)
}
