package index

import (
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// OpenOutcome is the outcome of a call without a settlement in the fields of lists.
const OpenOutcome = "open"

// ofCall is the condition of SQL that joins a table with a session, a message and a call to
// calls.
func ofCall(table string) string {
	return table + ".session = calls.session AND " + table + ".message = calls.message AND " + table + ".call = calls.call"
}

// outcomeWords returns the words of the field outcome.
func outcomeWords() []string {
	words := []string{OpenOutcome}
	for _, o := range domain.Outcomes() {
		words = append(words, o.String())
	}
	return words
}

// micros is the SQL of a time in microseconds.
func micros(column string) string {
	return "(unixepoch(" + column + ") * 1000000 + CAST(substr(" + column + ", 21, 6) AS INTEGER))"
}

// tookColumn is the SQL of the time that a call took, in milliseconds: from the start to the
// return of the tool, if that is on record, and otherwise to the end. It is null for a call
// that did not begin or has not ended, and for a lost one.
var tookColumn = "(CASE WHEN started_time IS NULL OR settled_time IS NULL OR coalesce(outcome, '') = 'lost' THEN NULL WHEN ran_ms > 0 THEN ran_ms ELSE max(0, (" +
	micros("settled_time") + " - " + micros("started_time") + ") / 1000) END)"

// decisions is the SQL of the rows of decisions and answers of a call, with one %s for a
// condition on its columns by and person.
var decisions = "EXISTS (SELECT 1 FROM (SELECT session, message, call, decided_by AS by, person FROM permissions UNION ALL SELECT session, message, call, answered_by, person FROM questions) AS decisions WHERE " +
	ofCall("decisions") + " AND %s)"

// The fields of conditions over lists.
var (
	// CallFields are the fields of calls.
	CallFields = []where.Field{
		{Name: "session", Type: where.Text, Column: "calls.session", Comment: "the session"},
		{Name: "turn", Type: where.Text, Column: "calls.turn", Comment: "the turn whose reply asks for the call"},
		{Name: "message", Type: where.Text, Column: "calls.message", Comment: "the reply that contains the call"},
		{Name: "call", Type: where.Text, Column: "calls.call", Comment: "the ID that the provider gave the call"},
		{Name: "parent", Type: where.Text, Column: "calls.parent", Comment: "the call that made this one"},
		{Name: "tool", Type: where.Text, Column: "calls.tool", Comment: "the name of the tool"},
		{Name: "title", Type: where.Text, Column: "calls.title", Comment: "one line about the call"},
		{Name: "agent", Type: where.Text, Column: "calls.agent", Comment: "the agent"},
		{Name: "model", Type: where.Text, Column: "(" + callModel + ")", Comment: "the model that replied"},
		{Name: "location", Type: where.Text, Column: "calls.location", Comment: "the workspace"},
		{Name: "imported", Type: where.Flag, Column: "calls.imported", Comment: "the session was imported"},
		{Name: "state", Type: where.Text, Column: "calls.state", Words: []string{string(calls.Asked), string(calls.Begun), string(calls.Settled)}, Comment: "asked, begun or settled"},
		{Name: "outcome", Type: where.Text, Column: "coalesce(calls.outcome, 'open')", Words: outcomeWords(), Comment: "how the call ended; open: it has not"},
		{Name: "began", Type: where.Flag, Column: "(calls.began OR calls.started_time IS NOT NULL)", Comment: "the tool may have run"},
		{Name: "interruption", Type: where.Text, Column: "calls.interruption", Comment: "the cause of an interruption"},
		{Name: "input", Type: where.Text, Column: "calls.input", Comment: "the first 256 bytes of the input"},
		{Name: "shown", Type: where.Text, Column: "calls.shown", Comment: "the first 256 bytes of the text that the model reads"},
		{Name: "error", Type: where.Text, Column: "calls.error", Comment: "the first 256 bytes of the text of a call that did not succeed"},
		{Name: "detail", Type: where.Text, Column: "calls.detail", Comment: "the first 256 bytes of the detail for the operator"},
		{Name: "input_bytes", Type: where.Number, Column: "calls.input_bytes", Comment: "the size of the input"},
		{Name: "shown_bytes", Type: where.Number, Column: "calls.shown_bytes", Comment: "the size of the text that the model reads"},
		{Name: "asked", Type: where.Time, Column: "calls.asked_time", Comment: "when the reply was recorded"},
		{Name: "started", Type: where.Time, Column: "calls.started_time", Comment: "when the call began"},
		{Name: "settled", Type: where.Time, Column: "calls.settled_time", Comment: "when the call was settled"},
		{Name: "took", Type: where.Duration, Column: tookColumn, Comment: "from the start to the return of the tool, or else to the end; absent if it did not begin or end, or was lost"},
		{Name: "waited", Type: where.Duration, Column: "calls.waited_ms", Comment: "how long it waited for decisions and answers"},
		{Name: "requests", Type: where.Number, Column: "calls.requests", Comment: "its permission requests and questions"},
		{Name: "late", Type: where.Number, Column: "calls.late_results", Comment: "results that came after the settlement"},
		{Name: "registration", Type: where.Text, Column: "calls.registration", Comment: "the offered registration"},
		{Name: "changed_by", Type: where.Text, Column: "calls.changed_by", Comment: "the event that made the offered registration stale"},
		{Name: "rule", Type: where.Text, Column: "calls.rule_source", Comment: "the file and line of the rule that denied the call"},
		{Name: "process", Type: where.Text, Column: "calls.process", Comment: "the process that ran the call"},
		{Name: "by", Type: where.Text, Column: "decisions.by", Each: decisions, Comment: "who decided its requests: rule, approval, user, headless or recovery"},
		{Name: "person", Type: where.Text, Column: "decisions.person", Each: decisions, Comment: "the OS users who decided its requests"},
		{Name: "path", Type: where.Text, Column: "paths.name", Each: "EXISTS (SELECT 1 FROM path_uses JOIN paths ON paths.path = path_uses.path WHERE path_uses.call = calls.id AND %s)", Comment: "the paths that it read, wrote or ran on"},
	}
	// SessionFields are the fields of sessions.
	SessionFields = []where.Field{
		{Name: "session", Type: where.Text, Column: "sessions.session", Comment: "the session"},
		{Name: "agent", Type: where.Text, Column: "sessions.agent", Comment: "the agent of the next turn"},
		{Name: "location", Type: where.Text, Column: "sessions.location", Comment: "the workspace"},
		{Name: "model", Type: where.Text, Column: "sessions.model", Comment: "the model"},
		{Name: "parent", Type: where.Text, Column: "sessions.parent", Comment: "the session that started this one"},
		{Name: "origin", Type: where.Text, Column: "sessions.origin", Comment: "run or import"},
		{Name: "format", Type: where.Text, Column: "sessions.origin_format", Comment: "the file format of an import"},
		{Name: "title", Type: where.Text, Column: "sessions.title", Comment: "the first 256 bytes of the first prompt"},
		{Name: "opened", Type: where.Time, Column: "sessions.opened_time", Comment: "the time of the first event"},
		{Name: "last", Type: where.Time, Column: "sessions.last_time", Comment: "the time of the last event"},
		{Name: "duration", Type: where.Duration, Column: "max(0, (" + micros("sessions.last_time") + " - " + micros("sessions.opened_time") + ") / 1000)", Comment: "from the first to the last event"},
		{Name: "prompts", Type: where.Number, Column: "sessions.prompts", Comment: "the number of prompts"},
		{Name: "turns", Type: where.Number, Column: "sessions.turns", Comment: "the number of turns"},
		{Name: "replies", Type: where.Number, Column: "sessions.replies", Comment: "the number of replies"},
		{Name: "calls", Type: where.Number, Column: "sessions.calls", Comment: "the number of calls"},
		{Name: "open", Type: where.Number, Column: "sessions.open_calls", Comment: "the calls without a settlement"},
		{Name: "failed", Type: where.Number, Column: "sessions.failed_calls", Comment: "the calls settled without success"},
		{Name: "requests", Type: where.Number, Column: "(SELECT count(*) FROM permissions WHERE permissions.session = sessions.session)", Comment: "the permission requests"},
		{Name: "asked", Type: where.Number, Column: "(SELECT count(*) FROM permissions WHERE permissions.session = sessions.session AND permissions.scope IS NOT NULL)", Comment: "the permission requests that a person decided"},
		{Name: "input_tokens", Type: where.Number, Column: "sessions.input_tokens", Comment: "input tokens without cached ones"},
		{Name: "output_tokens", Type: where.Number, Column: "sessions.output_tokens", Comment: "generated tokens"},
		{Name: "cache_read_tokens", Type: where.Number, Column: "sessions.cache_read_tokens", Comment: "input tokens read from the cache"},
		{Name: "cache_write_tokens", Type: where.Number, Column: "sessions.cache_write_tokens", Comment: "input tokens written to the cache"},
		{Name: "provider_failures", Type: where.Number, Column: "sessions.provider_failures", Comment: "failed requests to the provider"},
		{Name: "unknown_events", Type: where.Number, Column: "sessions.unknown_events", Comment: "events of kinds that this program does not know"},
		{Name: "interrupted", Type: where.Flag, Column: "sessions.interrupted", Comment: "interrupted without a later prompt or turn"},
		{Name: "closed", Type: where.Flag, Column: "sessions.closed", Comment: "the session was closed"},
	}
	// TurnFields are the fields of turns.
	TurnFields = []where.Field{
		{Name: "session", Type: where.Text, Column: "turns.session", Comment: "the session"},
		{Name: "turn", Type: where.Text, Column: "turns.turn", Comment: "the turn"},
		{Name: "message", Type: where.Text, Column: "turns.message", Comment: "the reply"},
		{Name: "agent", Type: where.Text, Column: "turns.agent", Comment: "the agent"},
		{Name: "model", Type: where.Text, Column: "turns.model", Comment: "the requested model"},
		{Name: "provider", Type: where.Text, Column: "turns.provider", Comment: "the program that serves the model"},
		{Name: "client", Type: where.Text, Column: "turns.client", Comment: "the program that runs the session"},
		{Name: "time", Type: where.Time, Column: "turns.time", Comment: "when it was materialized"},
		{Name: "tools", Type: where.Number, Column: "(SELECT tools FROM offers WHERE offers.offer = turns.offer)", Comment: "the number of offered tools"},
		{Name: "offered", Type: where.Text, Column: "offered_tools.tool", Each: "EXISTS (SELECT 1 FROM offered_tools WHERE offered_tools.offer = turns.offer AND %s)", Comment: "the offered tools"},
		{Name: "hidden", Type: where.Text, Column: "hidden_tools.tool", Each: "EXISTS (SELECT 1 FROM hidden_tools WHERE hidden_tools.session = turns.session AND hidden_tools.turn = turns.turn AND %s)", Comment: "the hidden tools"},
		{Name: "calls", Type: where.Number, Column: turnCalls, Comment: "the calls of its reply"},
		{Name: "disabled", Type: where.Flag, Column: "turns.disabled", Comment: "no tool was offered, as the maximum number of steps was reached"},
		{Name: "observed", Type: where.Flag, Column: "turns.observed", Comment: "an import saw the tools used"},
		{Name: "compacted", Type: where.Flag, Column: "(turns.compacted IS NOT NULL)", Comment: "the request leaves messages out"},
	}
	// RequestFields are the fields of permission requests and questions.
	RequestFields = []where.Field{
		{Name: "request", Type: where.Text, Column: "requests.request", Comment: "the permission request or the question"},
		{Name: "kind", Type: where.Text, Column: "requests.kind", Words: []string{"permission", "question"}, Comment: "permission or question"},
		{Name: "session", Type: where.Text, Column: "requests.session", Comment: "the session"},
		{Name: "message", Type: where.Text, Column: "requests.message", Comment: "the reply that contains the call"},
		{Name: "call", Type: where.Text, Column: "requests.call", Comment: "the call"},
		{Name: "agent", Type: where.Text, Column: "requests.agent", Comment: "the agent"},
		{Name: "action", Type: where.Text, Column: "requests.action", Comment: "the requested action; question for a question"},
		{Name: "resources", Type: where.Text, Column: "requests.resources", Comment: "the objects of the action, or the questions, as JSON"},
		{Name: "effect", Type: where.Text, Column: "requests.effect", Words: []string{"allow", "deny", "answered", "dismissed"}, Comment: "allow or deny, answered or dismissed; null: open"},
		{Name: "by", Type: where.Text, Column: "requests.by", Comment: "who decided: rule, approval, user, headless or recovery"},
		{Name: "scope", Type: where.Text, Column: "requests.scope", Words: []string{"once", "always", "reject"}, Comment: "the answer of a person: once, always or reject"},
		{Name: "person", Type: where.Text, Column: "requests.person", Comment: "the OS user who decided"},
		{Name: "feedback", Type: where.Text, Column: "requests.feedback", Comment: "the text of the person for the model"},
		{Name: "rule", Type: where.Text, Column: "requests.rule", Comment: "the file and line of the rule that denied"},
		{Name: "requested", Type: where.Time, Column: "requests.time", Comment: "the time of the request"},
		{Name: "decided", Type: where.Time, Column: "requests.decided", Comment: "the time of the decision"},
		{Name: "waited", Type: where.Duration, Column: "requests.waited", Comment: "from the request to the decision"},
	}
	// TextFields are the fields of searched texts.
	TextFields = []where.Field{
		{Name: "kind", Type: where.Text, Column: "texts.kind", Words: []string{"prompt", "reply", "input", "shown"}, Comment: "prompt, reply, input, or shown: the text that the model reads of a call"},
		{Name: "session", Type: where.Text, Column: "texts.session", Comment: "the session"},
		{Name: "message", Type: where.Text, Column: "texts.message", Comment: "the prompt or reply"},
		{Name: "call", Type: where.Text, Column: "texts.call", Comment: "the call of an input or a shown text"},
		{Name: "tool", Type: where.Text, Column: textTool, Comment: "the tool of that call"},
		{Name: "time", Type: where.Time, Column: textTime, Comment: "the time of the event"},
		{Name: "bytes", Type: where.Number, Column: "texts.bytes", Comment: "the size of the whole text"},
		{Name: "text", Type: where.Text, Column: "texts.text", Comment: "its first 8,192 bytes"},
	}
)

// callModel is the SQL of the model that replied with a call.
const callModel = "SELECT model FROM messages WHERE messages.session = calls.session AND messages.message = calls.message AND messages.kind = 'reply'"

// turnCalls is the SQL of the number of calls of a turn.
const turnCalls = "(SELECT count(*) FROM calls WHERE calls.turn = turns.turn AND calls.turn IS NOT NULL AND +calls.session = turns.session AND +calls.asked_time IS NOT NULL)"

// textTime is the SQL of the time of the event of a text.
const textTime = `(CASE texts.kind
	WHEN 'input' THEN (SELECT asked_time FROM calls WHERE calls.message = texts.message AND calls.call = texts.call AND calls.session = texts.session)
	WHEN 'shown' THEN (SELECT settled_time FROM calls WHERE calls.message = texts.message AND calls.call = texts.call AND calls.session = texts.session)
	ELSE (SELECT time FROM messages WHERE messages.session = texts.session AND messages.message = texts.message AND messages.kind = texts.kind) END)`
