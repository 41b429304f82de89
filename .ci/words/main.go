// Words reports how the Go code of a module reads: the share of comment lines
// in each package, how often its comments use the words that avoid a noun, the
// type names that more than one package declares, the sentences that use the
// most of these words, and a random sample of doc comments to judge by eye. It
// only reports: it fails if a file cannot be read or parsed, and for nothing else.
//
// Run it in the root of the module:
//
//	go run ./.ci/words [-seed N] [-sample N] [-worst N] [directory prefix ...]
//
// With directory prefixes it reports on the packages below them alone.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// signs are the words that a sentence uses in place of a noun (see the style
// guide). Each stands for itself, in any case.
var signs = []string{
	"what", "whoever", "whatever", "whichever", "none", "nobody", "somebody", "nothing", "anybody",
	"those", "stands", "told", "tells", "beside", "mend", "thereof", "wherein",
}

// shared are the type names that a package completes by design: events.Store
// and outputs.Store are two stores, and each is named well.
var shared = []string{
	"Config", "Options", "Store", "Client", "Server", "Reader", "Writer", "Error", "State", "Status", "View", "Projection", "Stats",
	"Health", "Report", "Filter", "Law", "Harness", "Subject", "Publisher",
}

func main() {
	seed := flag.Uint64("seed", 1, "seed of the sample of doc comments")
	sample := flag.Int("sample", 0, "number of doc comments to print")
	worst := flag.Int("worst", 10, "number of sentences to print")
	flag.Parse()
	m := &module{types: map[string][]string{}}
	if err := m.read(".", flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
	m.printPackages()
	m.printTypes()
	m.printSentences(*worst)
	m.printSample(*seed, *sample)
}

// A module is the code that is reported on.
type module struct {
	packages  []*pkg
	types     map[string][]string // the packages that declare a type of the name
	sentences []sentence
	docs      []string // each with its file, line and declaration
}

// A pkg counts the lines and words of one directory. Test files count in words
// and sentences, and not in the share of comment lines.
type pkg struct {
	dir                  string
	files, code, comment int // files and lines without tests; a blank line is neither
	exported             int // top-level names without tests
	words                int // in all comments
	signs                map[string]int
}

// A sentence is one of a comment, with the number of signs in it.
type sentence struct {
	at, text string
	signs    int
}

// read parses the Go files below root. It passes over directories whose name
// begins with a dot, testdata, and packages outside of the prefixes.
func (m *module) read(root string, prefixes []string) error {
	byDir := map[string]*pkg{}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || !within(path, prefixes):
			return nil
		}
		dir := filepath.Dir(path)
		p := byDir[dir]
		if p == nil {
			p = &pkg{dir: dir, signs: map[string]int{}}
			byDir[dir] = p
			m.packages = append(m.packages, p)
		}
		return m.readFile(p, path)
	})
}

func within(path string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(path, filepath.Clean(prefix))
	})
}

func (m *module) readFile(p *pkg, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	comments := map[int]bool{} // lines that a comment begins or fills
	for _, group := range file.Comments {
		if strings.HasPrefix(group.List[0].Text, "//go:") {
			continue
		}
		for _, c := range group.List {
			for line := set.Position(c.Pos()).Line; line <= set.Position(c.End()).Line; line++ {
				comments[line] = true
			}
		}
		m.readComment(p, set.Position(group.Pos()), group.Text())
	}
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	p.files++
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case comments[i+1] && strings.HasPrefix(line, "//"):
			p.comment++
		default:
			p.code++
		}
	}
	m.readDeclarations(p, set, file)
	return nil
}

var (
	ends = regexp.MustCompile(`[.!?:]\s+`)
	word = regexp.MustCompile(`[\pL\pN_']+`)
)

func (m *module) readComment(p *pkg, at token.Position, text string) {
	for _, s := range ends.Split(strings.Join(strings.Fields(text), " "), -1) {
		found := 0
		for _, w := range word.FindAllString(s, -1) {
			p.words++
			if w = strings.ToLower(w); slices.Contains(signs, w) {
				p.signs[w]++
				found++
			}
		}
		if found > 0 {
			m.sentences = append(m.sentences, sentence{fmt.Sprintf("%s:%d", at.Filename, at.Line), s, found})
		}
	}
}

// readDeclarations takes in the types, the exported names and the doc comments
// of a file.
func (m *module) readDeclarations(p *pkg, set *token.FileSet, file *ast.File) {
	doc := func(name string, pos token.Pos, group *ast.CommentGroup) {
		if group != nil {
			at := set.Position(pos)
			m.docs = append(m.docs, fmt.Sprintf("%s:%d %s\n%s", at.Filename, at.Line, name, group.Text()))
		}
	}
	export := func(name string) {
		if ast.IsExported(name) {
			p.exported++
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc(d.Name.Name, d.Pos(), d.Doc)
			if d.Recv == nil {
				export(d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc(spec.Name.Name, spec.Pos(), cmp.Or(spec.Doc, d.Doc))
					export(spec.Name.Name)
					if at := m.types[spec.Name.Name]; !slices.Contains(at, p.dir) {
						m.types[spec.Name.Name] = append(at, p.dir)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						export(name.Name)
					}
				}
			}
		}
	}
}

func (m *module) printPackages() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "files\tcode\tcomment\tshare\texported\twords\twhat/1000\tsigns/1000\t package")
	all := &pkg{dir: "all", signs: map[string]int{}}
	line := func(p *pkg) {
		found := 0
		for _, n := range p.signs {
			found += n
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%.0f %%\t%d\t%d\t%.1f\t%.1f\t %s\n", p.files, p.code, p.comment,
			100*float64(p.comment)/float64(max(1, p.code+p.comment)), p.exported, p.words,
			1000*float64(p.signs["what"])/float64(max(1, p.words)), 1000*float64(found)/float64(max(1, p.words)), p.dir)
	}
	slices.SortFunc(m.packages, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	for _, p := range m.packages {
		line(p)
		all.files, all.code, all.comment, all.exported, all.words = all.files+p.files, all.code+p.code, all.comment+p.comment, all.exported+p.exported, all.words+p.words
		for s, n := range p.signs {
			all.signs[s] += n
		}
	}
	line(all)
	_ = w.Flush()
}

// printTypes prints the type names that more than one package declares, but for
// the shared ones.
func (m *module) printTypes() {
	var names []string
	for name, at := range m.types {
		if len(at) > 1 && !slices.Contains(shared, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fmt.Printf("\n%d type names are declared in more than one package (not counted: %s)\n", len(names), strings.Join(shared, ", "))
	for _, name := range names {
		fmt.Printf("  %s: %s\n", name, strings.Join(m.types[name], ", "))
	}
}

func (m *module) printSentences(n int) {
	slices.SortStableFunc(m.sentences, func(a, b sentence) int { return b.signs - a.signs })
	fmt.Printf("\n%d sentences of comments use a word in place of a noun; the worst:\n", len(m.sentences))
	for _, s := range m.sentences[:min(n, len(m.sentences))] {
		fmt.Printf("  %s (%d) %s\n", s.at, s.signs, s.text)
	}
}

func (m *module) printSample(seed uint64, n int) {
	if n == 0 {
		return
	}
	random := rand.New(rand.NewPCG(seed, 0))
	fmt.Printf("\n%d of %d doc comments, by seed %d:\n", min(n, len(m.docs)), len(m.docs), seed)
	for i, at := range random.Perm(len(m.docs))[:min(n, len(m.docs))] {
		fmt.Printf("\n%d. %s", i+1, m.docs[at])
	}
}
