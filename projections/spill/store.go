package spill

import (
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// A Store is a temporary database. The caller closes it.
type Store struct {
	dir  string
	fs   *pebblefiles.FailStopFS
	db   *pebble.DB
	maps byte // the number of Maps, each of which has a prefix of its own
	err  error
}

// The sizes of the database in bytes.
const (
	memTable  = 4 << 20
	cacheSize = 8 << 20
)

// Open makes a Store in a new folder of the folder for temporary files.
func Open() (*Store, error) {
	dir, err := os.MkdirTemp("", "ledger-spill-")
	if err != nil {
		return nil, fmt.Errorf("make temporary database: %w", err)
	}
	s := &Store{dir: dir, fs: pebblefiles.NewFailStopFS(pebblefiles.Disk, pebblefiles.FailStopOptions{})}
	s.db, err = pebble.Open(dir, &pebble.Options{
		FS: s.fs, Logger: s.fs, DisableWAL: true, CacheSize: cacheSize, MemTableSize: memTable, MaxOpenFiles: 256,
		FormatMajorVersion: pebblefiles.FormatVersion,
		// By default Pebble ends the process at a corruption; here a read returns it.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	if failure := s.fs.Err(); failure != nil {
		err = failure // Pebble ignores it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make temporary database in %s: %w", dir, err), s.Close())
	}
	s.fs.Opened()
	return s, nil
}

// Close closes the database and removes its folder.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		s.fs.Closing()
		err = s.db.Close()
		s.fs.Wait()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Err returns the first error of the disk, or nil.
func (s *Store) Err() error {
	s.fail(s.fs.Err())
	return s.err
}

// fail keeps the first error.
func (s *Store) fail(err error) {
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("temporary database in %s: %w", s.dir, err)
	}
}

// get returns a copy of a value, or nil if there is none.
func (s *Store) get(key []byte) []byte {
	value, closer, err := s.db.Get(key)
	if err != nil {
		if !errors.Is(err, pebble.ErrNotFound) {
			s.fail(err)
		}
		return nil
	}
	data := append([]byte{}, value...)
	s.fail(closer.Close())
	return data
}

// set writes a value.
func (s *Store) set(key, value []byte) { s.fail(s.db.Set(key, value, pebble.NoSync)) }

// remove removes a value.
func (s *Store) remove(key []byte) { s.fail(s.db.Delete(key, pebble.NoSync)) }

// all yields the keys and values with a prefix. Both are valid until the next one.
func (s *Store) all(prefix byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
		if err != nil {
			s.fail(err)
			return
		}
		for ok := it.First(); ok; ok = it.Next() {
			if !yield(it.Key(), it.Value()) {
				break
			}
		}
		s.fail(it.Close())
	}
}
