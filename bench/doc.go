// Bench measures the embedded store against the goals that it is held to, and
// against its peers: SQLite, NATS JetStream, bbolt, Badger, and Pebble without
// what the store adds to it. It is a module of its own, so that nothing but it
// depends on them.
//
// Each peer is set up as its users would who want every event on the disk before
// they are answered, and tuned where its defaults would make it look worse than
// it is; the file of each peer says how.
//
//	go run . [-rounds N] [-only REGEXP] [-quick] [-dir FOLDER] [-csv FILE] [-time D] [-list]
//
// The columns of the CSV are those of package cmd/ledger/bench.
package main
