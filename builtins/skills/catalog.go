package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
)

// The limits of a Catalog.
const (
	// maxSkills is the maximum number of skills of one folder.
	maxSkills = 500
	// maxEntries is the maximum number of entries of a folder that Load reads.
	maxEntries = 10_000
	// maxFile is the maximum length of a SKILL.md in bytes.
	maxFile = 1 << 20
	// maxFolder is the maximum length of all SKILL.md files of a folder in bytes.
	maxFolder = 16 << 20
	// maxDescription is the maximum length of a description in bytes.
	maxDescription = 1024
)

// skillFile is the name of the file that makes a folder a skill.
const skillFile = "SKILL.md"

// Folders names the folders of skills. A folder need not exist.
type Folders struct {
	// Config is the configuration folder of the user. Its folder skills has skills.
	// Empty: the user has none.
	Config string
	// Project is the folder of the project. Its folder .ledger/skills has skills. Empty:
	// there is no project.
	Project string
}

// A Skill is one skill.
type Skill struct {
	Name        string `json:"name"`
	Description string `json:"description"` // one line
	// Directory is the path of the skill folder. It begins with the path in Folders.
	Directory string `json:"directory"`
}

// A RefusedSkill is a SKILL.md, or a folder, that could not be used.
type RefusedSkill struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // begins with the path
}

// A Catalog has the skills of one Load. It is immutable.
type Catalog struct {
	skills  map[string]Skill
	refused []RefusedSkill
}

// Load reads the skills of the folders. It reads each file again.
func Load(f Folders) *Catalog {
	c := &Catalog{skills: map[string]Skill{}}
	directories, err := f.open()
	if err != nil {
		c.refuse(f.Project, fmt.Errorf("%s: %w", f.Project, err))
	}
	for _, d := range slices.Backward(directories) {
		c.read(d)
		d.Close()
	}
	return c
}

// Skills returns the skills by name.
func (c *Catalog) Skills() []Skill {
	return slices.SortedFunc(maps.Values(c.skills), func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
}

// Refused returns the files and folders that could not be used, with their reasons.
func (c *Catalog) Refused() []RefusedSkill { return slices.Clone(c.refused) }

// open opens the folders, the project before the user. It returns an error if the
// project cannot be opened, and the folder of the user in any case. The caller closes
// the directories.
func (f Folders) open() (directories []*frontmatter.Directory, err error) {
	if f.Project != "" {
		d, openErr := frontmatter.OpenInside(f.Project, filepath.Join(".ledger", "skills"))
		if openErr == nil {
			directories = append(directories, d)
		} else if !errors.Is(openErr, fs.ErrNotExist) {
			err = openErr
		}
	}
	if f.Config != "" {
		directories = append(directories, frontmatter.OpenTrusted(filepath.Join(f.Config, "skills")))
	}
	return directories, err
}

// refuse adds a refused path.
func (c *Catalog) refuse(path string, err error) {
	c.refused = append(c.refused, RefusedSkill{path, err.Error()})
}

// read adds the skills of a directory. A skill replaces an earlier one of the same name.
// read ignores files beside the skill folders, and folders whose names begin with a dot.
func (c *Catalog) read(d *frontmatter.Directory) {
	entries, more, err := d.List("", maxEntries)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.refuse(d.Path(""), fmt.Errorf("%s: %w", d.Path(""), err))
	}
	if more {
		c.refuse(d.Path(""), fmt.Errorf("%s: the folder has more than %d entries, and the others are not read: remove some", d.Path(""), maxEntries))
	}
	found, room := 0, int64(maxFolder)
	for _, entry := range entries {
		if !entry.IsDir() && entry.Type()&fs.ModeSymlink == 0 || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if found == maxSkills {
			c.refuse(d.Path(""), fmt.Errorf("%s: the folder has more than %d skills, and those from %s on are left out: remove some", d.Path(""), maxSkills, entry.Name()))
			return
		}
		path := d.Path(filepath.Join(entry.Name(), skillFile))
		text, err := readSkill(d, entry.Name())
		if room -= int64(text.bytes); err == nil && room < 0 {
			err = fmt.Errorf("%s: the skills of the folder have more than %d bytes together: remove or shorten some", path, maxFolder)
		}
		if err != nil {
			c.refuse(path, err)
			continue
		}
		found++
		c.skills[text.Name] = text.Skill
	}
}

// A skillText is a skill with its instructions.
type skillText struct {
	Skill
	body    string
	bytes   int    // length of the file
	version string // of the content, as in a domain.FileAccess
}

// A skillHeader is the front matter of a SKILL.md.
type skillHeader struct {
	Name        frontmatter.Value[string] `yaml:"name"`
	Description frontmatter.Value[string] `yaml:"description"`
}

// readSkill reads the skill in the folder name of a directory. It returns an error that
// names the path, the key and the correction.
func readSkill(d *frontmatter.Directory, name string) (skillText, error) {
	file := filepath.Join(name, skillFile)
	path := d.Path(file)
	data, err := d.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return skillText{}, fmt.Errorf("%s: the folder has no %s: add it: %w", path, skillFile, fs.ErrNotExist)
	}
	if err != nil {
		return skillText{}, fmt.Errorf("%s: %w", path, err)
	}
	return parseSkill(name, path, data)
}

// parseSkill returns the skill of a SKILL.md with the path in the folder name.
func parseSkill(name, path string, data []byte) (skillText, error) {
	if err := frontmatter.CheckName(name); err != nil {
		return skillText{}, fmt.Errorf("%s: %w", path, err)
	}
	h := skillHeader{}
	body, err := frontmatter.Parse(path, data, &h)
	if err != nil {
		return skillText{}, err
	}
	description := strings.Join(strings.Fields(h.Description.V), " ")
	switch {
	case h.Name.V != name:
		return skillText{}, frontmatter.Fault(path, max(h.Name.Line, 1), "name", "it is %q and the folder is %q: give both the same name", h.Name.V, name)
	case description == "":
		return skillText{}, frontmatter.Fault(path, max(h.Description.Line, 1), "description", "there is no description: say in one sentence when to load the skill")
	case len(description) > maxDescription:
		return skillText{}, frontmatter.Fault(path, h.Description.Line, "description", "it is longer than %d bytes: shorten it, and write details into the body", maxDescription)
	case strings.ContainsFunc(description, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return skillText{}, frontmatter.Fault(path, h.Description.Line, "description", "it has a control character: remove it")
	}
	skill := Skill{Name: name, Description: description, Directory: filepath.Dir(path)}
	return skillText{Skill: skill, body: body, bytes: len(data), version: contentVersion(data)}, nil
}
