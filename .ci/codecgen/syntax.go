package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A pkg holds the declarations of one package that the generator uses, from
// all files but tests and the generated one.
type pkg struct {
	name    string
	fset    *token.FileSet
	types   map[string]typeDecl
	names   []string                   // of types, in the order of the files
	methods map[string]map[string]bool // names of methods by type, of values and of pointers
	vars    map[string]ast.Expr        // initial values of package variables
}

// A typeDecl is the declaration of a type.
type typeDecl struct {
	*ast.TypeSpec
	imports map[string]string // the import paths of its file by package name
}

// parsePackage parses the Go files of a folder.
func parsePackage(dir string) (*pkg, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	p := &pkg{fset: token.NewFileSet(), types: map[string]typeDecl{}, methods: map[string]map[string]bool{}, vars: map[string]ast.Expr{}}
	for _, f := range files {
		name := f.Name()
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || name == output {
			continue
		}
		file, err := parser.ParseFile(p.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.name = file.Name.Name
		p.add(file)
	}
	if p.name == "" {
		return nil, fmt.Errorf("%s has no Go files", dir)
	}
	return p, nil
}

// add adds the declarations of a file.
func (p *pkg) add(file *ast.File) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		to, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = to
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			p.addMethod(decl)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					p.types[spec.Name.Name] = typeDecl{spec, imports}
					p.names = append(p.names, spec.Name.Name)
				case *ast.ValueSpec:
					for i, value := range spec.Values {
						p.vars[spec.Names[i].Name] = value
					}
				}
			}
		}
	}
}

// addMethod adds the name of a method to its type. It ignores functions.
func (p *pkg) addMethod(decl *ast.FuncDecl) {
	if decl.Recv == nil {
		return
	}
	receiver := decl.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	id, ok := receiver.(*ast.Ident)
	if !ok {
		return
	}
	if p.methods[id.Name] == nil {
		p.methods[id.Name] = map[string]bool{}
	}
	p.methods[id.Name][decl.Name.Name] = true
}

// at returns an error with the file and line of a node.
func (p *pkg) at(n ast.Node, format string, args ...any) error {
	pos := p.fset.Position(n.Pos())
	return fmt.Errorf("%s:%d: "+format, append([]any{pos.Filename, pos.Line}, args...)...)
}

// A tableLine is a line of the table of kinds.
type tableLine struct {
	kind   string // the name under which the events are stored
	typ    string // the struct
	packed string // the struct that is encoded in its place; empty: the struct itself
	expr   ast.Expr
}

// table returns the lines of the variable kinds, in order.
func (p *pkg) table() ([]tableLine, error) {
	literal, ok := p.vars["kinds"].(*ast.CompositeLit)
	if !ok {
		return nil, fmt.Errorf("package %s has no table of kinds: declare var kinds = map[string]kind{…}", p.name)
	}
	var lines []tableLine
	for _, element := range literal.Elts {
		line, err := p.line(element)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(lines, func(l tableLine) bool { return l.kind == line.kind }) {
			return nil, p.at(element, "kind %s has two lines in the table", line.kind)
		}
		if i := slices.IndexFunc(lines, func(l tableLine) bool { return l.typ == line.typ }); i >= 0 {
			return nil, p.at(element, "struct %s has two kinds in the table, %s and %s", line.typ, lines[i].kind, line.kind)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// line returns the table line of one element of the map.
func (p *pkg) line(element ast.Expr) (line tableLine, err error) {
	malformed := p.at(element, `line of the table of kinds is not "Name": of[Type](upcasts...) or "Name": packed[Type, Packed](upcasts...)`)
	pair, ok := element.(*ast.KeyValueExpr)
	if !ok {
		return line, malformed
	}
	key, ok := pair.Key.(*ast.BasicLit)
	if !ok || key.Kind != token.STRING {
		return line, malformed
	}
	call, ok := pair.Value.(*ast.CallExpr)
	if !ok {
		return line, malformed
	}
	line.expr = element
	switch of := call.Fun.(type) {
	case *ast.IndexExpr:
		if exprText(of.X) != "of" {
			return line, malformed
		}
		line.typ = exprText(of.Index)
	case *ast.IndexListExpr:
		if exprText(of.X) != "packed" || len(of.Indices) != 2 {
			return line, malformed
		}
		line.typ, line.packed = exprText(of.Indices[0]), exprText(of.Indices[1])
	default:
		return line, malformed
	}
	line.kind, err = strconv.Unquote(key.Value)
	return line, err
}
