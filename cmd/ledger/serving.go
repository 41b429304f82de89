package main

import "time"

// serveWord is the command that a serving process is the owner with.
const serveWord = "ledger serve"

// The times of waiting for a process that begins to serve, or ends.
const (
	servingPause    = 20 * time.Millisecond
	servingPatience = 20 * time.Second
)
