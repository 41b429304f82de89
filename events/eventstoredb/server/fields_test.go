package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

// fieldPaths returns the paths of the fields of a message, nested fields
// included, without the prefix "options.". Message types that many requests
// share count as one field.
func fieldPaths(path string, m protoreflect.MessageDescriptor) (all []string) {
	switch name := string(m.Name()); {
	case m.Fields().Len() == 0, name == "UUID", name == "StreamIdentifier", name == "UUIDOption", strings.HasPrefix(string(m.FullName()), "google.protobuf."):
		return []string{path}
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		next := strings.TrimPrefix(strings.TrimPrefix(path+"."+string(f.Name()), "."), "options.")
		if f.Message() == nil || f.IsMap() {
			all = append(all, next)
			continue
		}
		all = append(all, fieldPaths(next, f.Message())...)
	}
	return all
}

// requests returns the field paths of each request of the services, by method.
func requests() map[string][]string {
	all := map[string][]string{}
	for _, file := range []protoreflect.FileDescriptor{
		streams.File_streams_proto, persistent.File_persistent_proto, gossip.File_gossip_proto, serverfeatures.File_serverfeatures_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				name := string(service.Name()) + "/" + string(method.Name())
				all[name] = nil
				for _, field := range fieldPaths("", method.Input()) {
					if field != "" {
						all[name] = append(all[name], field)
					}
				}
			}
		}
	}
	return all
}

// documentedFields returns the treatment of each field of each call in
// docs/serving.md.
func documentedFields(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "serving.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+/[A-Za-z]+)` \\| (.*) \\| (done|refused|ignored)(.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		if all[row[1]] == nil {
			all[row[1]] = map[string]string{}
		}
		if row[3] == "ignored" && !strings.HasPrefix(row[4], ": ") {
			t.Errorf("docs/serving.md does not say why %s of %s are ignored", row[2], row[1])
		}
		for _, field := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			if all[row[1]][field[1]] != "" {
				t.Errorf("docs/serving.md names %s of %s twice", field[1], row[1])
			}
			all[row[1]][field[1]] = row[3]
		}
	}
	return all
}

// The table in docs/serving.md lists exactly the fields of the requests.
func TestEveryRequestFieldIsDocumented(t *testing.T) {
	t.Parallel()
	known := documentedFields(t)
	for call, fields := range requests() {
		if known[call] == nil {
			t.Errorf("docs/serving.md does not name %s", call)
		}
		for _, field := range fields {
			if known[call][field] == "" {
				t.Errorf("docs/serving.md does not say what becomes of %s of %s", field, call)
			}
		}
		for field := range known[call] {
			if !slices.Contains(fields, field) {
				t.Errorf("docs/serving.md names %s of %s, which there is not", field, call)
			}
		}
	}
	for call := range known {
		if _, ok := requests()[call]; !ok {
			t.Errorf("docs/serving.md names the call %s, which there is not", call)
		}
	}
}

// A field that docs/serving.md calls ignored does not change the group that a
// request creates or updates.
func TestIgnoredGroupFieldsChangeNothing(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), everything))
	client := persistent.NewPersistentSubscriptionsClient(conn)
	known := documentedFields(t)
	tried := 0
	for _, all := range []bool{false, true} {
		create := func() *persistent.CreateReq {
			o := createOptions("g")
			if all {
				o.StreamOption = &persistent.CreateReq_Options_All{All: &persistent.CreateReq_AllOptions{
					AllOption: &persistent.CreateReq_AllOptions_Start{Start: none()},
					FilterOption: &persistent.CreateReq_AllOptions_Filter{Filter: &persistent.CreateReq_AllOptions_FilterOptions{
						Filter: &persistent.CreateReq_AllOptions_FilterOptions_EventType{EventType: &persistent.CreateReq_AllOptions_FilterOptions_Expression{Prefix: []string{"A"}}},
					}},
				}}
			}
			return &persistent.CreateReq{Options: o}
		}
		update := func() *persistent.UpdateReq {
			o := &persistent.UpdateReq_Options{GroupName: "g", Settings: &persistent.UpdateReq_Settings{
				LiveBufferSize: 10, ReadBatchSize: 10, HistoryBufferSize: 10, MaxCheckpointCount: 1, MaxRetryCount: 1, NamedConsumerStrategy: persistent.UpdateReq_RoundRobin,
			}}
			if all {
				o.StreamOption = &persistent.UpdateReq_Options_All{All: &persistent.UpdateReq_AllOptions{}}
			} else {
				o.StreamOption = &persistent.UpdateReq_Options_Stream{Stream: &persistent.UpdateReq_StreamOptions{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}}}
			}
			return &persistent.UpdateReq{Options: o}
		}
		// stand creates a group, updates it, and returns its statistics.
		stand := func(c *persistent.CreateReq, u *persistent.UpdateReq) string {
			t.Helper()
			if _, err := client.Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Update(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			info := &persistent.GetInfoReq_Options{GroupName: "g", StreamOption: &persistent.GetInfoReq_Options_All{All: none()}}
			gone := &persistent.DeleteReq_Options{GroupName: "g", StreamOption: &persistent.DeleteReq_Options_All{All: none()}}
			if !all {
				id := &shared.StreamIdentifier{StreamName: []byte("s-1")}
				info.StreamOption = &persistent.GetInfoReq_Options_StreamIdentifier{StreamIdentifier: id}
				gone.StreamOption = &persistent.DeleteReq_Options_StreamIdentifier{StreamIdentifier: id}
			}
			got, err := client.GetInfo(t.Context(), &persistent.GetInfoReq{Options: info})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Delete(t.Context(), &persistent.DeleteReq{Options: gone}); err != nil {
				t.Fatal(err)
			}
			return prototext.Format(got)
		}
		want := stand(create(), update())
		for call, of := range map[string]string{"PersistentSubscriptions/Create": "create", "PersistentSubscriptions/Update": "update"} {
			for field, what := range known[call] {
				c, u := create(), update()
				m := map[string]proto.Message{"create": c, "update": u}[of]
				if what != "ignored" || !set(m.ProtoReflect(), strings.Split("options."+field, ".")) {
					continue
				}
				tried++
				if got := stand(c, u); got != want {
					t.Errorf("%s of %s is ignored, and makes the group %s, want %s", field, call, got, want)
				}
			}
		}
	}
	if tried < 10 {
		t.Errorf("%d fields were tried, want 10 at least", tried)
	}
}

// set gives the field at a path a non-zero value. It reports whether the
// messages on the path are of the chosen oneof.
func set(m protoreflect.Message, path []string) bool {
	f := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case len(path) > 1 && f.ContainingOneof() != nil && !m.Has(f) && m.WhichOneof(f.ContainingOneof()) != nil:
		return false
	case len(path) > 1:
		return set(m.Mutable(f).Message(), path[1:])
	case f.Message() != nil:
		m.Set(f, m.NewField(f))
	case f.Kind() == protoreflect.Uint64Kind:
		m.Set(f, protoreflect.ValueOfUint64(7))
	case f.Kind() == protoreflect.Uint32Kind:
		m.Set(f, protoreflect.ValueOfUint32(7))
	default:
		return false
	}
	return true
}
