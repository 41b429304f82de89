package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A resultWire is the JSON form of the result of a call, with the references to the
// trajectories of the subsessions that the call started.
type resultWire struct {
	Call string              `json:"source_call_id"`
	Refs []trajectoryRefWire `json:"subagent_trajectory_ref"`
}

// A trajectoryRefWire is the JSON form of a reference to a trajectory: either the path of
// a file, relative to the document, or the ID of one of the subagent_trajectories of the
// document.
type trajectoryRefWire struct {
	Session    string `json:"session_id"`
	Trajectory string `json:"trajectory_id"`
	Path       string `json:"trajectory_path"`
}

// The bounds of a document with its subsessions.
const (
	// maxDepth is the maximum depth of subsessions.
	maxDepth = 16
	// maxDocuments is the maximum number of trajectories of a document.
	maxDocuments = 1000
)

// runningSessions maps each session that asked for a reply to its trajectory.
type runningSessions struct {
	mu struct {
		sync.Mutex
		of map[domain.SessionID]*Script
	}
}

// A documentParser reads a trajectory and the trajectories of its subsessions.
type documentParser struct {
	// folder is the folder of the document. Empty: the document is in no folder, and a
	// reference to a file is an error.
	folder string
	// depth is the number of trajectories above this one.
	depth int
	// count counts the trajectories read. Nil: this is the first one.
	count *int
}

// Load reads the ATIF 1.x document at path, as [Parse] does, and the files that it names
// as trajectories of subsessions. The path of such a file is relative to the folder of the
// document that names the file. Load returns the errors of Parse and of the file system.
func Load(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return documentParser{folder: filepath.Dir(path)}.read(path, f)
}

// read parses the document in r. The trajectories of the document share one
// runningSessions.
func (p documentParser) read(name string, r io.Reader) (*Script, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w", name, err)
	}
	if p.count == nil {
		p.count = new(int)
	}
	s, err := p.parse(name, data)
	if err != nil {
		return nil, err
	}
	s.share(&runningSessions{})
	return s, nil
}

// share sets the runningSessions of a trajectory and of its subsessions.
func (s *Script) share(running *runningSessions) {
	s.running = running
	for _, below := range s.subsessions {
		below.share(running)
	}
}

// addSubsessions parses the trajectories that the results of d name, and stores them in s.
func (p documentParser) addSubsessions(s *Script, name string, d atifDocument) error {
	var faults []error
	fault := func(step int, format string, args ...any) {
		faults = append(faults, fmt.Errorf("read trajectory %s: %w: step %d: %w", name, ErrNotATIF, step+1, fmt.Errorf(format, args...)))
	}
	for i, step := range d.Steps {
		for _, result := range step.Observation.Results {
			if result.Call == "" || len(result.Refs) == 0 {
				continue
			}
			call := domain.CallID(result.Call)
			if len(result.Refs) > 1 || s.subsessions[call] != nil {
				fault(i, "call %s has more than one subsession: one call starts one", call)
				continue
			}
			below, err := p.resolve(name, d, result.Refs[0])
			if err != nil {
				fault(i, "subsession of call %s: %w", call, err)
				continue
			}
			if s.subsessions == nil {
				s.subsessions = map[domain.CallID]*Script{}
			}
			s.subsessions[call] = below
		}
	}
	return errors.Join(faults...)
}

// resolve parses the trajectory that ref names.
func (p documentParser) resolve(name string, d atifDocument, ref trajectoryRefWire) (*Script, error) {
	p.depth++
	if *p.count++; p.depth > maxDepth || *p.count > maxDocuments {
		return nil, fmt.Errorf("more than %d levels or %d trajectories of subsessions: shorten the document", maxDepth, maxDocuments)
	}
	for _, data := range d.Subagents {
		var id struct {
			Session    string `json:"session_id"`
			Trajectory string `json:"trajectory_id"`
		}
		if json.Unmarshal(data, &id) != nil {
			continue
		}
		if ref.Trajectory != "" && id.Trajectory == ref.Trajectory || ref.Trajectory == "" && ref.Path == "" && ref.Session != "" && id.Session == ref.Session {
			return p.parse(name+" (subsession "+ref.Trajectory+ref.Session+")", data)
		}
	}
	switch {
	case ref.Path == "":
		return nil, errors.New("the document has no trajectory of this ID in subagent_trajectories")
	case p.folder == "":
		return nil, fmt.Errorf("it is in the file %s, and the document is in no folder", ref.Path)
	}
	path := filepath.Join(p.folder, filepath.FromSlash(ref.Path))
	if filepath.IsAbs(ref.Path) {
		path = ref.Path
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p.folder = filepath.Dir(path)
	return p.parse(path, data)
}

// of returns the trajectory of a session. For a session without a parent this is s. For a
// subsession it is the trajectory that the trajectory of the parent names for the call. of
// returns ErrNoSubsession if there is no such trajectory, or if the parent asked for no
// reply.
func (s *Script) of(c *conversation.State) (*Script, error) {
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	if s.running.mu.of == nil {
		s.running.mu.of = map[domain.SessionID]*Script{}
	}
	if known := s.running.mu.of[c.Session]; known != nil {
		return known, nil
	}
	own := s
	if !c.Parent.IsZero() {
		own = nil
		if parent := s.running.mu.of[c.Parent]; parent != nil {
			own = parent.subsessions[c.ParentCall]
		}
	}
	if own == nil {
		return nil, fmt.Errorf("replay session %s: %w: %s", c.Session, ErrNoSubsession, c.ParentCall)
	}
	s.running.mu.of[c.Session] = own
	return own, nil
}
