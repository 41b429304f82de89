package eventstoredb

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The formats of client log messages that report a state the client exposes in no
// other way. The version of the client is pinned, and tests check that it logs these
// formats.
const (
	// logCallFailed reports that a call failed. If the code is Unavailable, the client
	// then searches for a node, and the next request for the connection waits for that
	// search.
	logCallFailed = "unexpected exception: %v"
	// The client connected to the node that another node named as the leader.
	logMovedToLeader = "successfully connected to leader node %s"
	// The client did not connect to that node, and looks for a node at the next
	// request for the connection.
	logLeaderUnreachable    = "exception when connecting to suggested node %s"
	logLeaderFeaturesFailed = "exception when fetching server features from suggested node %s: %v"
)

// handleClientLog reacts to a log message of client c. It retires c after a failed
// call, or after c failed to move to another leader. After c has moved to another
// leader, it marks the server version of c as unchecked. It ignores messages that have
// none of the formats above. The client calls it on its own goroutines, and waits until
// it returns.
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

// awaitReconnect keeps a retired client from searching for a node. If that search failed,
// the client would end, and a call that reports a new leader to it would block forever.
// The client logs on the goroutine that searches, so awaitReconnect, called from its
// logger, blocks that goroutine until a new client has connected, the retry timeout has
// passed, or the store closes.
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

// forwardLog writes a log message of the client to the logger of the store. It never
// uses a level above info, because every error that the client logs is also returned
// by a call. The client does not log connection strings.
func (g *connector) forwardLog(level esdb.LogLevel, format string, args []any) {
	slogLevel := slog.LevelDebug
	switch level {
	case esdb.LogWarn, esdb.LogError: // a call returns every such error as well
		slogLevel = slog.LevelInfo
	}
	if g.log.Enabled(g.closed, slogLevel) {
		g.log.Log(g.closed, slogLevel, fmt.Sprintf(format, args...), "from", "EventStoreDB client")
	}
}
