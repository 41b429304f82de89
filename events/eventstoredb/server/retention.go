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
)

// settingsStream is the stream in which EventStoreDB keeps its default access rights.
const settingsStream = "$settings"

// The members of a stream's metadata, and of the settings, on which EventStoreDB
// acts, each with the reason why it is refused here.
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

// actedOn returns a member of data on which EventStoreDB would act if they were
// appendResponse to a stream, and an empty text if there is none.
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

// mayHold returns PERMISSION_DENIED if what others append to a stream would have
// EventStoreDB hide records or change rights, which this server does not.
func checkMetadata(ctx context.Context, stream events.Stream, data []byte) error {
	member := refusedMember(stream, data)
	if member == "" {
		return nil
	}
	return denied(ctx, "append to %s: access denied: a ledger does not act on %s: %s; leave it out", stream, member, refusedMembers[member])
}

// Delete is refused to everybody.
func (s *streamsService) Delete(ctx context.Context, req *streams.DeleteReq) (*streams.DeleteResp, error) {
	if _, err := s.requireRole(ctx, Reader); err != nil {
		return nil, err
	}
	return nil, refuseDeletion(ctx, "delete", req.GetOptions().GetStreamIdentifier().GetStreamName())
}

// Tombstone is refused to everybody.
func (s *streamsService) Tombstone(ctx context.Context, req *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	if _, err := s.requireRole(ctx, Reader); err != nil {
		return nil, err
	}
	return nil, refuseDeletion(ctx, "tombstone", req.GetOptions().GetStreamIdentifier().GetStreamName())
}

// forgetsNothing returns the status that refuses a deletion. The Go clients know the status, as a
// feature that is not supported. Other clients have no type for it, and know the
// name of the trailer, as access that is denied.
func refuseDeletion(ctx context.Context, operation string, stream []byte) error {
	setException(ctx, "access-denied")
	return status.Errorf(codes.Unimplemented, "%s %q: access denied: a ledger forgets nothing: streams are neither deleted nor tombstoned", operation, stream)
}
