package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// settingsStream is the stream in which EventStoreDB stores the default access
// rights of all streams.
const settingsStream = "$settings"

// refusedMembers are the members of stream metadata, and of the settings, that
// EventStoreDB acts on and this server refuses, because it would acknowledge a
// setting without effect. The value is the reason in the error text.
var refusedMembers = map[string]string{
	"$maxCount":        reasonRetention,
	"$maxAge":          reasonRetention,
	"$tb":              reasonRetention,
	"$cacheControl":    "there is no HTTP interface to its streams",
	"$acl":             reasonRights,
	"$userStreamAcl":   reasonRights,
	"$systemStreamAcl": reasonRights,
}

const (
	reasonRetention = "it hides and forgets no records"
	reasonRights    = "who may do what is decided by its users and by the prefixes that it opens"
)

// refusedMember returns the alphabetically first refused member of data that are
// appended to a metadata stream or the settings stream, or an empty string if the
// data have no such member. A member with the value null has no effect and is
// accepted, as are data that are not a JSON object.
func refusedMember(stream events.Stream, data []byte) string {
	if !strings.HasPrefix(string(stream), "$$") && stream != settingsStream {
		return ""
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return ""
	}
	var names []string
	for name, value := range members {
		if refusedMembers[name] != "" && string(value) != "null" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// checkMetadata returns PERMISSION_DENIED for data by which EventStoreDB would
// hide records or change access rights. The text names the member and the reason.
func checkMetadata(ctx context.Context, stream events.Stream, data []byte) error {
	member := refusedMember(stream, data)
	if member == "" {
		return nil
	}
	return denied(ctx, "append to %s: access denied: a ledger does not act on %s: %s; leave it out", stream, member, refusedMembers[member])
}

// Delete implements Streams.Delete. It refuses every call, since a ledger keeps
// all records.
func (s *streamsService) Delete(ctx context.Context, req *streams.DeleteReq) (*streams.DeleteResp, error) {
	if _, err := s.requireRole(ctx, auth.Reader); err != nil {
		return nil, err
	}
	return nil, refuseDeletion(ctx, "delete", req.GetOptions().GetStreamIdentifier().GetStreamName())
}

// Tombstone implements Streams.Tombstone. It refuses every call, as Delete does.
func (s *streamsService) Tombstone(ctx context.Context, req *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	if _, err := s.requireRole(ctx, auth.Reader); err != nil {
		return nil, err
	}
	return nil, refuseDeletion(ctx, "tombstone", req.GetOptions().GetStreamIdentifier().GetStreamName())
}

// refuseDeletion returns the status for a deletion. The Go clients map
// UNIMPLEMENTED to an unsupported feature. Other clients have no type for
// UNIMPLEMENTED, and map the trailer to an access denied error.
func refuseDeletion(ctx context.Context, operation string, stream []byte) error {
	setException(ctx, "access-denied")
	return status.Errorf(codes.Unimplemented, "%s %q: access denied: a ledger forgets nothing: streams are neither deleted nor tombstoned", operation, stream)
}
