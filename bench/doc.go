// Bench measures the embedded store against its performance goals and against other
// databases: SQLite, NATS JetStream, bbolt, Badger, and Pebble without the code that
// the store adds to it. It is a separate module, so that the ledger does not depend
// on these databases.
//
// Each database is configured as a user would who needs every event on the disk
// before an append returns. Where its defaults would make it slower than it can be,
// it is tuned. The file of each database documents its configuration.
//
//	go run . [-rounds N] [-only REGEXP] [-quick] [-dir FOLDER] [-csv FILE] [-time D] [-list]
//
// It prints one table with the rows of package cmd/ledger/bench, which need no other
// database, and the rows of this module. That package documents the columns of the
// CSV. The exit status is 0, or 1 if a row was not measured, or 2 for invalid
// arguments. A missed goal is a verdict in the table and does not change the exit
// status.
//
// If one database fails, its rows have no verdict and the other rows are still
// measured. An interrupt or SIGTERM cancels the run, which then removes its temporary
// folder.
package main
