package eventstoredb

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What the client logs where nothing else tells. Its version is pinned, and
// tests hold that it logs so.
const (
	// An error of a call, before the client has the connection replaced if
	// that is not available. From then on whoever asks for the connection has
	// it look for a node.
	logCallFailed = "unexpected exception: %v"
	// It has gone to the node that another named as the leader,
	logMovedToLeader = "successfully connected to leader node %s"
	// or could not, and looks for a node when it is asked the next time.
	logLeaderUnreachable    = "exception when connecting to suggested node %s"
	logLeaderFeaturesFailed = "exception when fetching server features from suggested node %s: %v"
)

// handleClientLog takes in what a client logs.
func (g *connector) handleClientLog(c *sharedClient, format string, args []any) {
	switch format {
	case logCallFailed:
		if len(args) != 1 {
			return
		}
		if err, ok := args[0].(error); ok && status.Code(err) == codes.Unavailable {
			c.retire()
		}
	case logMovedToLeader:
		c.versionUnchecked.Store(true)
	case logLeaderUnreachable, logLeaderFeaturesFailed:
		c.retireNow()
		g.awaitReconnect()
	}
}

// awaitReconnect returns when another client has found a node, or when patience or the
// store ends. What a client that lost the leader has at work waits for it: if
// it looked for a node and found none, it would end under those who tell it to
// move.
func (g *connector) awaitReconnect() {
	ctx, cancel := context.WithTimeout(g.closed, g.retryTimeout)
	defer cancel()
	for p := (&retryBackoff{}); ; {
		c, err := g.acquire(ctx)
		if err == nil {
			c.handleMu.Unlock()
			c.release()
			return
		}
		if p.wait(ctx, err, 0) != nil {
			return
		}
	}
}

// forwardLog passes on what the client logs. It never logs a connection string.
func (g *connector) forwardLog(level esdb.LogLevel, format string, args []any) {
	slogLevel := slog.LevelDebug
	switch level {
	case esdb.LogWarn, esdb.LogError: // every error comes back to a call as well
		slogLevel = slog.LevelInfo
	}
	if g.log.Enabled(g.closed, slogLevel) {
		g.log.Log(g.closed, slogLevel, fmt.Sprintf(format, args...), "from", "EventStoreDB client")
	}
}
