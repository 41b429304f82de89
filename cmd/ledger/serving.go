package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// The names in the folder of a store that is served. The store has the owner
// file, which says who holds its lock.
const (
	servingName = "serving"
	servedName  = "served" // what the serving file was when serving ended, in order or not
	ownerName   = "owner"
)

// serveWord is the command that a serving process is the owner with.
const serveWord = "ledger serve"

// A serving says where a store, or a node of a ledger in a database, is served. It
// stands in the folder, for other commands of who may read that, and goes when
// serving ends. One that a killed process left in a store's folder names another
// start than the owner file. From a node's folder it goes when another process
// opens the outputs.
type serving struct {
	PID        int              `json:"pid"`
	Started    time.Time        `json:"started"`
	Process    domain.ProcessID `json:"process,omitzero"` // under which it is on record
	Address    string           `json:"address"`          // HOST:PORT; empty: of a node, whose database is reached as before
	Connection string           `json:"connection"`       // for commands of this machine, with credentials for this folder alone
	Outputs    string           `json:"outputs"`          // http://HOST:PORT or https://HOST:PORT, for commands of this machine
	Node       string           `json:"node"`             // the same for other nodes; what processes at work here put on record
	User       string           `json:"user"`             // for outputs; empty: none is asked for
	Password   string           `json:"password"`
}

// write puts a serving into a folder.
func (s serving) write(dir string) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = replaceFile(filepath.Join(dir, servingName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write where %s is served: %w", dir, err)
	}
	return nil
}

// retire ends what write began, and keeps it for whoever serves the folder next.
func retire(dir string) error {
	err := os.Rename(filepath.Join(dir, servingName), filepath.Join(dir, servedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// lastServing returns how a folder was served last, and the zero serving if it
// never was. Commands that are at work since then come back to what they know.
func lastServing(dir string) (last serving) {
	if readJSON(filepath.Join(dir, servingName), &last) != nil && readJSON(filepath.Join(dir, servedName), &last) != nil {
		return serving{}
	}
	return last
}

// The errors of looking for who serves a folder.
var (
	errNotServed  = errors.New("the process that has the store open does not serve it")
	errServerCame = errors.New("the store was given up meanwhile")
)

// The patience with a process that has begun to serve or is about to end.
const (
	servingPause    = 20 * time.Millisecond
	servingPatience = 20 * time.Second
)

// serverOf returns where a folder is served that another process has open. It
// waits for one that has begun to serve, or ends. One that does not serve is
// errNotServed; a folder that became free is errServerCame.
func serverOf(ctx context.Context, dir string) (serving, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, servingPatience, errNotServed)
	defer cancel()
	for {
		var owner embedded.Owner
		switch err := readJSON(filepath.Join(dir, ownerName), &owner); {
		case errors.Is(err, os.ErrNotExist):
			return serving{}, errServerCame
		case err != nil:
			return serving{}, errNotServed
		case owner.Command != serveWord:
			return serving{}, errNotServed
		}
		var at serving
		if readJSON(filepath.Join(dir, servingName), &at) == nil && at.PID == owner.PID && at.Started.Equal(owner.Started) {
			return at, nil
		}
		if err := pause(ctx, servingPause); err != nil {
			return serving{}, err
		}
	}
}

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}
