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
	unexpected = "unexpected exception: %v"
	// It has gone to the node that another named as the leader,
	wentToLeader = "successfully connected to leader node %s"
	// or could not, and looks for a node when it is asked the next time.
	noLeader         = "exception when connecting to suggested node %s"
	noLeaderFeatures = "exception when fetching server features from suggested node %s: %v"
)

// notice takes in what a client logs.
func (g *guard) notice(c *client, format string, args []any) {
	switch format {
	case unexpected:
		if len(args) != 1 {
			return
		}
		if err, ok := args[0].(error); ok && status.Code(err) == codes.Unavailable {
			c.retire()
		}
	case wentToLeader:
		c.moved.Store(true)
	case noLeader, noLeaderFeatures:
		c.condemn()
		g.await()
	}
}

// await returns when another client has found a node, or when patience or the
// store ends. What a client that lost the leader has at work waits for it: if
// it looked for a node and found none, it would end under those who tell it to
// move.
func (g *guard) await() {
	ctx, cancel := context.WithTimeout(g.life, g.patience)
	defer cancel()
	for p := (&pace{}); ; {
		c, err := g.client(ctx)
		if err == nil {
			c.asking.Unlock()
			c.leave()
			return
		}
		if p.failed(ctx, err, 0) != nil {
			return
		}
	}
}

// tell passes on what the client logs. It never logs a connection string.
func (g *guard) tell(level esdb.LogLevel, format string, args []any) {
	at := slog.LevelDebug
	switch level {
	case esdb.LogWarn, esdb.LogError: // every error comes back to a call as well
		at = slog.LevelInfo
	}
	if g.log.Enabled(g.life, at) {
		g.log.Log(g.life, at, fmt.Sprintf(format, args...), "from", "EventStoreDB client")
	}
}
