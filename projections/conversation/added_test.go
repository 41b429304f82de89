package conversation_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A state from a checkpoint equals the folded one, at any length of the stream.
func TestADecodedConversationIsTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 6)) {
		for _, stream := range sessions(projectionstest.History(seed, 200)) {
			for cut := 0; cut <= len(stream); cut += 7 {
				s := fold(stream[:cut])
				if again := decoded(t, s); !reflect.DeepEqual(s, again) {
					if diff := cmp.Diff(s, again, everything, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(conversation.State{})); diff != "" {
						t.Fatalf("seed %d, %d events (-before +after decoding):\n%s", seed, cut, diff)
					}
				}
			}
		}
	}
}

// Added calls have their own start and end, and are open until then. No model reads them.
func TestAddedCallsAreNotForTheModel(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	message := d.answer("", call("a"), call("b"))
	d.start(message, "a")
	added := d.add(events.CallsAdded{Message: message, Parent: "a", Calls: []domain.Call{call("a/1"), call("a/2")}})
	d.add(events.CallsAdded{Message: d.log.Mint.Message(), Parent: "a", Calls: []domain.Call{call("elsewhere")}})
	d.start(message, "a/1")
	d.settle(message, "a/1", "one")
	d.settle(message, "a", "all")
	for _, s := range []*conversation.State{d.state(), decoded(t, d.state())} {
		one, _ := s.Call(message, "a/1")
		two, ok := s.Call(message, "a/2")
		if !ok || one.Parent != "a" || one.AddedBy != added.ID || one.Started == nil || one.Settlement == nil || two.Settlement != nil || two.Message != message {
			t.Errorf("the added calls are %+v and %+v", one, two)
		}
		var open []domain.CallID
		for _, c := range s.Open() {
			open = append(open, c.ID)
		}
		if !reflect.DeepEqual(open, []domain.CallID{"b", "a/2"}) {
			t.Errorf("Open = %v, want b and a/2", open)
		}
		shown := s.ModelMessages()
		if len(shown) != 4 || len(shown[1].Calls) != 2 || shown[2].Reading.Text != "all" || shown[3].Reading.Error != conversation.OutcomeUnknown {
			t.Errorf("the model reads %+v, want the prompt, the reply and the results of a and b", shown)
		}
	}
}

// The agent of a reply is that of its turn. A switch in between counts for the next turn.
func TestTheAgentOfAReplyIsThatOfItsTurn(t *testing.T) {
	t.Parallel()
	d := newDesk()
	turn := func(agent domain.AgentID, switches ...domain.AgentID) {
		turn, message := d.log.Mint.Turn(), d.log.Mint.Message()
		d.add(events.TurnMaterialized{Turn: turn, Message: message, Agent: agent})
		for _, to := range switches {
			d.add(events.AgentSwitched{Agent: to})
		}
		d.add(events.ReplyReceived{Turn: turn, Message: message})
	}
	turn("build", "plan")
	turn("plan", "build", "general")
	d.answer("of a turn that names no agent")
	s := decoded(t, d.state())
	var agents []domain.AgentID
	for _, m := range s.Messages {
		agents = append(agents, m.Reply.Agent)
	}
	if want := []domain.AgentID{"build", "plan", "general"}; !reflect.DeepEqual(agents, want) || s.Agent != "general" {
		t.Errorf("the replies are of %v and the next turn of %s, want %v and general", agents, s.Agent, want)
	}
}

// A state has the last todos, the digests of all texts, the questions without an answer,
// and of each file the version that the session saw last. It keeps its ancestors and the
// call that started it.
func TestAStateHasTheLastTodosTextsQuestionsAndVersions(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.add(events.SessionOpened{
		Session: d.session, Agent: "general", Parent: d.log.Mint.Session(), ParentMessage: d.log.Mint.Message(), ParentCall: "p", Ancestors: []domain.AgentID{"build", "plan"},
	})
	d.add(events.TodosReplaced{Todos: []domain.Todo{{Content: "one"}, {Content: "two"}}})
	d.add(events.TodosReplaced{Todos: []domain.Todo{{Content: "three", Status: "pending", Priority: "low"}}})
	for _, digest := range []string{"aa", "bb", "aa"} {
		d.add(events.TextRecorded{Digest: digest, Text: digest})
	}
	first, second, third := d.log.Mint.Permission(), d.log.Mint.Permission(), d.log.Mint.Permission()
	for _, id := range []domain.PermissionID{first, second, third} {
		d.add(events.QuestionAsked{Question: id, Call: "a", Questions: []domain.Question{{Question: "Which?", Options: []domain.QuestionOption{{Label: "x"}}}}})
	}
	d.add(events.QuestionAnswered{Question: first, Answers: []events.AnsweredQuestion{{Chosen: []string{"x"}}}})
	d.add(events.QuestionAnswered{Question: third, Dismissed: true})
	message := d.answer("", call("a"), call("b"))
	version := func(path, version string) domain.FileAccess {
		return domain.FileAccess{Path: path, Access: domain.FileChanged, Version: version}
	}
	for id, files := range map[domain.CallID][]domain.FileAccess{
		"a": {version("/a", "v1"), version("/b", "v1"), version("/c", "v1"), version("/a", "v2"), version("/b", "")},
	} {
		d.add(events.CallSettled{Turn: d.turn, Message: message, Call: id, Outcome: domain.Succeeded, Began: true, Files: files})
	}
	for _, s := range []*conversation.State{d.state(), decoded(t, d.state())} {
		if len(s.Todos) != 1 || s.Todos[0] != (domain.Todo{Content: "three", Status: "pending", Priority: "low"}) {
			t.Errorf("Todos = %v, want the last ones", s.Todos)
		}
		if !reflect.DeepEqual(s.Texts, map[string]bool{"aa": true, "bb": true}) {
			t.Errorf("Texts = %v, want aa and bb", s.Texts)
		}
		if len(s.Questions) != 1 || s.Questions[0].Question != second || s.Questions[0].Questions[0].Options[0].Label != "x" {
			t.Errorf("Questions = %v, want the second", s.Questions)
		}
		if want := map[string]string{"/a": "v2", "/c": "v1"}; !reflect.DeepEqual(s.Files, want) {
			t.Errorf("Files = %v, want %v", s.Files, want)
		}
		if s.Parent.IsZero() || s.ParentMessage.IsZero() || s.ParentCall != "p" || !reflect.DeepEqual(s.Ancestors, []domain.AgentID{"build", "plan"}) {
			t.Errorf("the session is of call %s of %s below %v", s.ParentCall, s.Parent, s.Ancestors)
		}
	}
}
