package agents

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
	"github.com/settlement-ledger/ledger/domain"
)

// Limits of a folder of agents.
const (
	// maxFile is the maximum length of an agent file in bytes.
	maxFile = 1 << 20
	// maxFolder is the maximum length of all agent files of a folder in bytes.
	maxFolder = 16 << 20
	// maxEntries is the maximum number of entries of a folder that Load reads.
	maxEntries = 10_000
)

// extension ends the name of an agent file.
const extension = ".md"

// builtIn is the Source of a built-in agent.
const builtIn = "built in"

// builtInFiles has the files of the built-in agents.
//
//go:embed builtin/*.md
var builtInFiles embed.FS

// A LoadConfig names the folders of agent files. A folder need not exist.
type LoadConfig struct {
	// ConfigFolder is the configuration folder of the user. Its folder agents has
	// agent files. Empty: the user has none.
	ConfigFolder string
	// ProjectFolder is the folder of the project. Its folder .ledger/agents has agent
	// files. Empty: there is no project.
	ProjectFolder string
}

// Load reads the built-in agents and the agents of the folders. It reads each file again.
func Load(c LoadConfig) *Set {
	s := &Set{agents: map[domain.AgentID]Agent{}}
	for _, a := range s.builtIn() {
		s.agents[a.Name] = a
	}
	for _, a := range s.ofUser(c.ConfigFolder) {
		s.agents[a.Name] = a
	}
	for _, a := range s.ofProject(c.ProjectFolder) {
		if replaced, ok := s.agents[a.Name]; ok {
			a = a.replacing(replaced)
		}
		s.agents[a.Name] = a
	}
	for _, r := range s.refused {
		delete(s.agents, r.Name)
	}
	return s
}

// builtIn returns the built-in agents.
func (s *Set) builtIn() []Agent {
	var found []Agent
	for _, name := range []domain.AgentID{Build, Plan, General} {
		path := "builtin/" + string(name) + extension
		data, err := builtInFiles.ReadFile(path)
		if err != nil {
			panic(err) // the file is compiled in
		}
		a, err := Parse(name, "built-in agent "+string(name), data)
		if err != nil {
			s.refuse(name, path, err)
			continue
		}
		a.Source = builtIn
		found = append(found, a)
	}
	return found
}

// ofUser returns the agents of the configuration folder.
func (s *Set) ofUser(folder string) []Agent {
	if folder == "" {
		return nil
	}
	return s.read(frontmatter.OpenTrusted(filepath.Join(folder, "agents")))
}

// ofProject returns the agents of a project folder.
func (s *Set) ofProject(folder string) []Agent {
	if folder == "" {
		return nil
	}
	d, err := frontmatter.OpenInside(folder, filepath.Join(".ledger", "agents"))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.refuse("", folder, fmt.Errorf("%s: %w", folder, err))
		}
		return nil
	}
	defer d.Close()
	return s.read(d)
}

// read returns the agents of a directory in the order of their names, and adds the files
// that it refuses to the Set. It ignores files without the extension and files whose
// names begin with a dot, which editors and systems create.
func (s *Set) read(d *frontmatter.Directory) []Agent {
	entries, more, err := d.List("", maxEntries)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.refuse("", d.Path(""), fmt.Errorf("%s: %w", d.Path(""), err))
	}
	if more {
		s.refuse("", d.Path(""), fmt.Errorf("%s: the folder has more than %d entries, and the others are not read: remove files", d.Path(""), maxEntries))
	}
	var found []Agent
	room := int64(maxFolder)
	for _, entry := range entries {
		text, ok := strings.CutSuffix(entry.Name(), extension)
		if !ok || strings.HasPrefix(text, ".") {
			continue
		}
		name, path := domain.AgentID(text), d.Path(entry.Name())
		data, err := readFile(d, entry.Name(), &room)
		if err != nil {
			s.refuse(name, path, fmt.Errorf("%s: %w", path, err))
			continue
		}
		a, err := Parse(name, path, data)
		if err != nil {
			s.refuse(name, path, err)
			continue
		}
		found = append(found, a)
	}
	return found
}

// readFile returns the content of an agent file and subtracts its length from room, which
// limits all files of a folder.
func readFile(d *frontmatter.Directory, name string, room *int64) ([]byte, error) {
	data, err := d.Read(name, maxFile)
	if err != nil {
		return nil, err
	}
	if *room -= int64(len(data)); *room < 0 {
		return nil, fmt.Errorf("the agent files of the folder have more than %d bytes together: remove or shorten some", maxFolder)
	}
	return data, nil
}
