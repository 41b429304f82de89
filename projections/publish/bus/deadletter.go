package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// DeadLetterCategory is the category of the streams that list dead letters.
const DeadLetterCategory = "deadletter"

// deadLetterStream returns the stream that lists the dead letters of a group.
func deadLetterStream(group, topic string) events.Stream {
	return events.Stream(DeadLetterCategory + "-" + group + "/" + topic)
}

// A DeadLetterMessage is a message that a group no longer delivers, so that later
// messages can follow. The message remains in its topic.
type DeadLetterMessage struct {
	// Revision is that of the message in the stream of the topic.
	Revision events.Revision
	Event    domain.EventID
	UUID     string
	Reason   string
	// Refusals counts the negative acknowledgements, and Unanswered the deliveries
	// without an answer within AckWait.
	Refusals   int
	Unanswered int
	Time       time.Time
	// Released reports that the message is to be delivered again.
	Released bool

	// Message is the message as it was published, or nil if its record is damaged.
	Message *message.Message
}

// The kinds of the records in a dead letter stream: a message became a dead letter;
// messages are to be redelivered; a redelivered message was acknowledged.
const (
	kindDeadLettered = "MessageDeadLettered"
	kindReleased     = "DeadLettersReleased"
	kindAcknowledged = "DeadLetterAcknowledged"
)

// deadLettered is the data of a MessageDeadLettered record. Revision, Event and UUID
// identify the message.
type deadLettered struct {
	Group      string          `json:"group"`
	Topic      string          `json:"topic"`
	Revision   events.Revision `json:"revision"`
	Event      domain.EventID  `json:"event"`
	UUID       string          `json:"uuid"`
	Reason     string          `json:"reason"`
	Refusals   int             `json:"refusals,omitempty"`
	Unanswered int             `json:"unanswered,omitempty"`
}

// releasedLetters is the data of a DeadLettersReleased record.
type releasedLetters struct {
	Revisions []events.Revision `json:"revisions"`
}

// acknowledgedLetter is the data of a DeadLetterAcknowledged record.
type acknowledgedLetter struct {
	Revision events.Revision `json:"revision"`
}

// A deadLetterList is the fold of the dead letter stream of a group. The zero list
// has read no record. The dispatcher of the group owns its list.
type deadLetterList struct {
	// read is the length of the stream as far as it was read.
	read events.Revision
	// open has the dead letters that are not acknowledged, by revision, without their
	// messages.
	open map[events.Revision]*DeadLetterMessage
	// released has the revisions to redeliver, in the order of their release. Some of
	// these messages may meanwhile be acknowledged or refused; first skips them.
	released []events.Revision
}

// has reports whether the message at revision r is a dead letter.
func (l *deadLetterList) has(r events.Revision) bool { return l.open[r] != nil }

// refresh reads the records that were appended since the last refresh. If it returns
// an error, the records before the error are applied, and the next refresh continues
// after them.
func (l *deadLetterList) refresh(ctx context.Context, store events.Store, s events.Stream) error {
	for e, err := range store.Read(ctx, s, l.read) {
		if err == nil {
			err = l.take(e)
		}
		if err != nil {
			return fmt.Errorf("read the dead letters of %s: %w", s, err)
		}
		l.read = e.Revision
	}
	return nil
}

// take applies one record of the dead letter stream. It ignores an unknown kind, and
// returns an events.ErrDamaged for invalid data.
func (l *deadLetterList) take(e events.Entry) error {
	var set deadLettered
	var released releasedLetters
	var taken acknowledgedLetter
	var data any
	var apply func()
	switch e.Kind {
	case kindDeadLettered:
		data, apply = &set, func() { l.add(set, e.Time) }
	case kindReleased:
		data, apply = &released, func() { l.release(released.Revisions) }
	case kindAcknowledged:
		data, apply = &taken, func() { delete(l.open, taken.Revision) }
	default:
		return nil
	}
	if err := json.Unmarshal(e.Data, data); err != nil {
		return fmt.Errorf("%w: %s at revision %d: %w", events.ErrDamaged, e.Kind, e.Revision, err)
	}
	apply()
	return nil
}

// add adds a dead letter. A redelivered message that is refused again replaces its
// earlier dead letter, with Released unset.
func (l *deadLetterList) add(d deadLettered, at time.Time) {
	if l.open == nil {
		l.open = map[events.Revision]*DeadLetterMessage{}
	}
	l.open[d.Revision] = &DeadLetterMessage{
		Revision: d.Revision, Event: d.Event, UUID: d.UUID, Reason: d.Reason, Refusals: d.Refusals, Unanswered: d.Unanswered, Time: at,
	}
}

// release marks dead letters for redelivery. It ignores messages that are not dead
// letters or are released already.
func (l *deadLetterList) release(revisions []events.Revision) {
	for _, r := range revisions {
		if d := l.open[r]; d != nil && !d.Released {
			d.Released = true
			l.released = append(l.released, r)
		}
	}
}

// first returns the revision of the first released dead letter, and whether there is
// one. It drops the revisions before it that no longer need redelivery.
func (l *deadLetterList) first() (events.Revision, bool) {
	for len(l.released) > 0 {
		if d := l.open[l.released[0]]; d != nil && d.Released {
			return d.Revision, true
		}
		l.released = l.released[1:]
	}
	return 0, false
}

// revisions returns the revisions of all dead letters, sorted.
func (l *deadLetterList) revisions() []events.Revision { return slices.Sorted(maps.Keys(l.open)) }

// refresh reads new records of the group's dead letter stream. Only the dispatcher
// calls it.
func (g *group) refresh(ctx context.Context) error {
	return g.letters.refresh(ctx, g.bus.config.Store, g.deadLetters)
}

// released returns the first released dead letter as a pending message, or nil if
// there is no released one. It reads the message from its topic.
func (g *group) released(ctx context.Context) (*pending, error) {
	r, ok := g.letters.first()
	if !ok {
		return nil, nil
	}
	e, err := g.bus.entry(ctx, g.stream, r)
	if err != nil {
		return nil, err
	}
	return g.pending(e, true), nil
}

// deadLetter records a message as a dead letter. It first reads new records of the
// dead letter stream: an earlier append that failed may have recorded the message
// after all.
func (g *group) deadLetter(ctx context.Context, p *pending) error {
	if err := g.refresh(ctx); err != nil {
		return err
	}
	if d := g.letters.open[p.entry.Revision]; d != nil && !d.Released {
		return nil
	}
	set := deadLettered{
		Group: g.name, Topic: g.topic, Revision: p.entry.Revision, Event: p.entry.ID, UUID: p.entry.ID.String(),
		Reason: p.reason(g.bus.config.Redelivery), Refusals: p.refusals, Unanswered: p.unanswered,
	}
	if p.template != nil {
		set.UUID = p.template.UUID
	}
	return g.record(ctx, kindDeadLettered, set)
}

// recordAck records the acknowledgement of a redelivered dead letter, which is then
// no longer in the list.
func (g *group) recordAck(ctx context.Context, r events.Revision) error {
	return g.record(ctx, kindAcknowledged, acknowledgedLetter{r})
}

// record appends a record to the group's dead letter stream and applies it to the
// list.
func (g *group) record(ctx context.Context, kind string, data any) error {
	if err := g.bus.appendDeadLetterRecord(ctx, g.deadLetters, kind, data); err != nil {
		return err
	}
	return g.refresh(ctx)
}

// appendDeadLetterRecord appends a record to a dead letter stream. It is durable when
// the function returns.
func (b *Bus) appendDeadLetterRecord(ctx context.Context, s events.Stream, kind string, data any) error {
	encoded, err := json.Marshal(data)
	if err == nil {
		err = b.append(ctx, s, []events.Record{{
			ID: b.config.Mint.Event(), Kind: kind, Version: 1, Time: b.config.Now().UTC().Truncate(time.Microsecond), Data: encoded,
		}})
	}
	if err != nil {
		return fmt.Errorf("record %s in %s: %w", kind, s, err)
	}
	return nil
}

// entry reads the record at a revision of a topic's stream. If the stream is shorter,
// the error is an events.ErrDamaged.
func (b *Bus) entry(ctx context.Context, s events.Stream, r events.Revision) (events.Entry, error) {
	for e, err := range b.config.Store.Read(ctx, s, r-1) {
		return e, err
	}
	return events.Entry{}, fmt.Errorf("%w: %s has no revision %d, which a dead letter names", events.ErrDamaged, s, r)
}

// letters reads the dead letters of a group from the store. It returns their list l
// and the stream s of the topic. An invalid name is an ErrBadTopic or an ErrBadGroup.
func (b *Bus) letters(ctx context.Context, group, topic string) (l deadLetterList, s events.Stream, err error) {
	if s, err = streamOf(topic); err != nil {
		return l, "", err
	}
	if err = validGroup(group); err != nil {
		return l, "", err
	}
	return l, s, l.refresh(ctx, b.config.Store, deadLetterStream(group, topic))
}

// DeadLetters yields the dead letters of a group that are not acknowledged, in
// the order of the topic. It reads the dead letter stream and each message. An
// error is yielded last.
func (b *Bus) DeadLetters(ctx context.Context, group, topic string) iter.Seq2[DeadLetterMessage, error] {
	return func(yield func(DeadLetterMessage, error) bool) {
		l, s, err := b.letters(ctx, group, topic)
		for _, r := range l.revisions() {
			if err != nil {
				break
			}
			d := *l.open[r]
			var e events.Entry
			if e, err = b.entry(ctx, s, r); err == nil {
				if m, damage := messageOf(e); damage == nil {
					d.Message = m
				}
				if !yield(d, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(DeadLetterMessage{}, err)
		}
	}
}

// maxReleased bounds the revisions in one DeadLettersReleased record.
const maxReleased = 10_000

// Release requests the redelivery, before new messages, of the dead letters of a
// group at these revisions, or of all if there are no revisions. It ignores a
// revision that is not a dead letter. It returns the number of dead letters released
// when the request is durable, and does not wait for the delivery. After an error
// some may be released. A message that is refused again becomes a dead letter again.
func (b *Bus) Release(ctx context.Context, group, topic string, revisions ...events.Revision) (int, error) {
	l, stream, err := b.letters(ctx, group, topic)
	if err != nil {
		return 0, err
	}
	var released []events.Revision
	for _, r := range l.revisions() {
		if !l.open[r].Released && (len(revisions) == 0 || slices.Contains(revisions, r)) {
			released = append(released, r)
		}
	}
	for some := range slices.Chunk(released, maxReleased) {
		if err := b.appendDeadLetterRecord(ctx, deadLetterStream(group, topic), kindReleased, releasedLetters{some}); err != nil {
			return 0, err
		}
	}
	b.group(group, topic, stream).deadLettersChanged.Store(true)
	return len(released), nil
}

// validGroup returns an ErrBadGroup that states the rule, or nil.
func validGroup(name string) error {
	if !groupNames.MatchString(name) {
		return fmt.Errorf("%w: %q: use 1 to 128 letters, digits, dots, hyphens and underscores", ErrBadGroup, name)
	}
	return nil
}
