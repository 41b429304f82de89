package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// checkTopic returns a publish.ErrBadTopic unless every topic of t is a subject that
// can be published to: non-empty tokens without spaces, control characters and
// wildcards, outside the server's own subjects.
func checkTopic(t publish.Topic) error {
	for token := range strings.SplitSeq(t.Pattern("x"), ".") {
		switch {
		case token == "":
			return fmt.Errorf("%w: %q has an empty part before, between or after its dots", publish.ErrBadTopic, t)
		case strings.ContainsAny(token, "*>"), strings.ContainsFunc(token, unicode.IsSpace), strings.ContainsFunc(token, unicode.IsControl):
			return fmt.Errorf("%w: %q: a NATS subject has no space, no * and no >", publish.ErrBadTopic, t)
		}
	}
	if strings.HasPrefix(t.Pattern("x"), "$") || strings.HasPrefix(t.Pattern("x"), "_INBOX.") {
		return fmt.Errorf("%w: %q: subjects that begin with $ and _INBOX are the server's own", publish.ErrBadTopic, t)
	}
	return nil
}

// ensureStream finds the JetStream stream that stores the subjects of a topic and
// checks that it stores all of them. If the server has no such stream, ensureStream
// creates one on files, with the name in the URL or else a name derived from the
// subjects. It returns an ErrNoJetStream or an ErrStream.
func (a serverURL) ensureStream(ctx context.Context, conn *nats.Conn, topic publish.Topic) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	js, err := conn.JetStream()
	if err != nil {
		return fmt.Errorf("connect to %s: %w: %w", a.redacted, ErrNoJetStream, err)
	}
	subject := subjects(topic)
	found, err := js.StreamNameBySubject(subject, nats.Context(ctx))
	switch {
	case err == nil && a.stream != "" && found != a.stream:
		return fmt.Errorf("publish to %s: %w: the subjects %s are kept by the stream %s, not by %s", a.redacted, ErrStream, subject, found, a.stream)
	case err == nil:
		return a.checkSubjects(ctx, js, found, subject)
	case errors.Is(err, nats.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("publish to %s: %w: start it with -js", a.redacted, ErrNoJetStream)
	case !errors.Is(err, nats.ErrNoMatchingStream):
		return fmt.Errorf("publish to %s: %w: look up the stream of %s: %w", a.redacted, ErrStream, subject, withServerError(conn, err))
	}
	name := a.stream
	if name == "" {
		name = streamName(subject)
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name: name, Description: "Records of a ledger", Subjects: []string{subject}, Storage: nats.FileStorage, Duplicates: dedupWindow,
	}, nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("publish to %s: %w: create the stream %s for %s: %w", a.redacted, ErrStream, name, subject, withServerError(conn, err))
	}
	return nil
}

// subjects returns a NATS pattern that matches all subjects of a topic. A token with
// a placeholder becomes a whole wildcard, because an asterisk next to other text
// matches only itself.
func subjects(topic publish.Topic) string {
	tokens := strings.Split(topic.Pattern("*"), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// checkSubjects returns an ErrStream unless one subject pattern of the stream matches
// all subjects of a topic. Without this check, a record with a subject outside the
// stream would never be acknowledged.
func (a serverURL) checkSubjects(ctx context.Context, js nats.JetStreamContext, stream, subject string) error {
	about, err := js.StreamInfo(stream, nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("publish to %s: %w: look up the subjects of %s: %w", a.redacted, ErrStream, stream, err)
	}
	for _, kept := range about.Config.Subjects {
		if covers(strings.Split(kept, "."), strings.Split(subject, ".")) {
			return nil
		}
	}
	return fmt.Errorf("publish to %s: %w: %s keeps %s, which are not all of %s", a.redacted, ErrStream, stream, strings.Join(about.Config.Subjects, ", "), subject)
}

// covers reports whether the pattern kept matches every subject that the pattern
// tokens matches. Both are lists of tokens, compared from the left. In kept, ">"
// matches all remaining tokens, "*" matches any one token, and any other token
// matches itself. A "*" in tokens stands for any value, so only "*" or ">" in kept
// matches it.
func covers(kept, tokens []string) bool {
	switch {
	case len(kept) == 0 || len(tokens) == 0:
		return len(kept) == len(tokens)
	case kept[0] == ">":
		return true
	}
	return (kept[0] == "*" || kept[0] == tokens[0]) && covers(kept[1:], tokens[1:])
}

// streamName derives the name of a new stream from the fixed tokens of its subjects,
// joined by underscores. Without fixed tokens it is "ledger".
func streamName(subject string) string {
	var tokens []string
	for token := range strings.SplitSeq(subject, ".") {
		if token != "" && !strings.Contains(token, "*") {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		return "ledger"
	}
	return strings.Join(tokens, "_")
}
