package process

import (
	"sync"
	"syscall"
)

// liveCommands has the commands of this process whose leader is not reaped. It is a
// variable because a signal handler has no other way to them.
var liveCommands liveSet

// A liveSet is a set of live commands. The zero liveSet is empty. It is safe for
// concurrent use.
type liveSet struct {
	mu struct {
		sync.Mutex
		commands map[*liveCommand]bool
	}
}

// add adds a command whose pid is set.
func (s *liveSet) add(l *liveCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.commands == nil {
		s.mu.commands = map[*liveCommand]bool{}
	}
	s.mu.commands[l] = true
}

// remove removes a command. The caller lets its leader be reaped only afterwards.
func (s *liveSet) remove(l *liveCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.commands, l)
}

// kill kills the process group and the marked descendants of each command.
func (s *liveSet) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.mu.commands {
		_ = syscall.Kill(-l.pid, syscall.SIGKILL) // the leader is not reaped, so the ID is its own
		killDescendants(l.mark)
	}
}

// KillAll kills every running command of this process with its descendants, without a
// grace period. A program calls it immediately before it exits without waiting for the
// ends of its commands. It is safe for concurrent use.
func KillAll() { liveCommands.kill() }
