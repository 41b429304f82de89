package index

import (
	"database/sql/driver"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// applyLayer writes the rows of an event of a process or a layer. A repeated opening or
// closing, and an event that names an unknown layer or registration, change nothing, as
// in projections/catalog.
func (f *filler) applyLayer(v events.Envelope) (err error) {
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		_, err = f.exec(`INSERT INTO processes (process, host, pid, program, version, address, lease_until, started_position, started_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (process) DO UPDATE SET host = excluded.host, pid = excluded.pid, program = excluded.program, version = excluded.version, address = excluded.address,
			lease_until = excluded.lease_until, started_position = excluded.started_position, started_time = excluded.started_time WHERE started_position IS NULL`,
			e.Process, e.Host, e.PID, e.Program, e.Version, e.Address, e.Until, v.Position, v.Time)
	case events.LeaseRenewed:
		_, err = f.exec("UPDATE processes SET lease_until = ? WHERE process = ?", e.Until, e.Process)
	case events.ProcessStopped:
		_, err = f.exec(`INSERT INTO processes (process, stopped_position, stopped_time, stop_reason) VALUES (?, ?, ?, ?)
			ON CONFLICT (process) DO UPDATE SET stopped_position = excluded.stopped_position, stopped_time = excluded.stopped_time, stop_reason = excluded.stop_reason
			WHERE stopped_position IS NULL`, e.Process, v.Position, v.Time, e.Reason)
	case events.LayerOpened:
		_, err = f.exec(`INSERT OR IGNORE INTO layers (layer, placement, location, session, process, observed, opened_position, opened_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			e.Layer, e.Placement, e.Location, e.Session, e.Process, e.Observed, v.Position, v.Time)
	case events.LayerClosed:
		return f.closed(e, v)
	case events.ToolsRegistered:
		return f.registered(e, v)
	case events.RegistrationClosed:
		layer, ok := v.Stream.Layer()
		if !ok {
			return nil
		}
		_, err = f.exec(`UPDATE registrations SET closed_position = ?1, closed_time = ?2, closed_event = ?3, closed_reason = ?4, ended_position = coalesce(ended_position, ?1)
			WHERE registration = ?5 AND layer = ?6 AND closed_position IS NULL`, v.Position, v.Time, v.ID, e.Reason, e.Registration, layer)
	}
	return err
}

// closed writes the closing of a layer, which ends its registrations.
func (f *filler) closed(e events.LayerClosed, v events.Envelope) error {
	n, err := f.exec("UPDATE layers SET closed_position = ?, closed_time = ?, closed_event = ?, closed_reason = ? WHERE layer = ? AND closed_position IS NULL",
		v.Position, v.Time, v.ID, e.Reason, e.Layer)
	if err == nil && n > 0 {
		_, err = f.exec("UPDATE registrations SET ended_position = ? WHERE layer = ? AND ended_position IS NULL", v.Position, e.Layer)
	}
	return err
}

// registered writes the rows of a registration. A registration in a closed layer ends
// where it begins.
func (f *filler) registered(e events.ToolsRegistered, v events.Envelope) error {
	layer, ok := v.Stream.Layer()
	if !ok {
		return nil
	}
	id := domain.RegistrationOf(v.ID)
	n, err := f.exec(`INSERT OR IGNORE INTO registrations (registration, layer, scope, registered_position, registered_time, ended_position)
		SELECT ?1, ?2, ?3, ?4, ?5, CASE WHEN closed_position IS NULL THEN NULL ELSE ?4 END FROM layers WHERE layer = ?2`, id, layer, e.Scope, v.Position, v.Time)
	if err != nil || n == 0 {
		return err
	}
	for i, t := range e.Tools {
		available, err := list(t.Available)
		if err != nil {
			return err
		}
		_, err = f.exec(`INSERT INTO registered_tools (registration, place, tool, description, action, fingerprint, idempotent, asks_first, input_schema, output_schema, available)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, i, string(t.Name), t.Description, t.Action, t.Fingerprint, t.Idempotent, t.AsksFirst, string(t.Input), string(t.Output), available)
		if err != nil {
			return err
		}
	}
	for i, t := range e.Refused {
		if _, err := f.exec("INSERT INTO refused_tools (registration, place, tool, reason) VALUES (?, ?, coalesce(?, ''), ?)", id, i, t.Name, t.Reason); err != nil {
			return err
		}
	}
	return nil
}

// applyPermission writes the rows of a permission request or a question and of its end.
// A request counts for its call, and an end for the time that the call waited, as in
// projections/calls.
func (f *filler) applyPermission(s *sessionRow, v events.Envelope) error {
	switch e := v.Event.(type) {
	case events.PermissionRequested:
		resources, err := list(e.Resources)
		if err != nil {
			return err
		}
		_, err = f.exec(`INSERT OR REPLACE INTO permissions (permission, session, message, call, agent, action, resources, requested_event, requested_position, requested_time)
			VALUES (?, ?, ?, ?, ?, ?, coalesce(?, '[]'), ?, ?, ?)`, e.Permission, s.ID, e.Message, string(e.Call), string(e.Agent), e.Action, resources, v.ID, v.Position, v.Time)
		if err != nil {
			return err
		}
		return f.requested(s, e.Message, e.Call, requestPaths(e))
	case events.QuestionAsked:
		questions, err := list(e.Questions)
		if err != nil {
			return err
		}
		_, err = f.exec(`INSERT OR REPLACE INTO questions (question, session, message, call, agent, questions, asked_event, asked_position, asked_time)
			VALUES (?, ?, ?, ?, ?, coalesce(?, '[]'), ?, ?, ?)`, e.Question, s.ID, e.Message, string(e.Call), string(e.Agent), questions, v.ID, v.Position, v.Time)
		if err != nil {
			return err
		}
		return f.requested(s, e.Message, e.Call, nil)
	case events.PermissionDecided:
		effect := ""
		if e.Effect != 0 {
			effect = e.Effect.String()
		}
		approvals, err := list(e.Approvals)
		if err != nil {
			return err
		}
		n, err := f.exec(`UPDATE permissions SET effect = ?, decided_by = ?, scope = ?, person = ?, feedback = ?, rule_action = ?, rule_resource = ?, rule_source = ?,
			approvals = ?, waited_ms = ?, decided_event = ?, decided_position = ?, decided_time = ? WHERE permission = ? AND decided_event IS NULL`,
			effect, string(e.By), e.Scope, e.Person, e.Feedback, e.Rule.Action, e.Rule.Resource, e.Rule.Source, approvals, e.WaitedMS, v.ID, v.Position, v.Time, e.Permission)
		if err != nil || n == 0 {
			return err
		}
		return f.waited(s, "SELECT message, call, session FROM permissions WHERE permission = ?", e.Permission, e.WaitedMS, v)
	case events.QuestionAnswered:
		answers := make([][]string, len(e.Answers))
		for i, a := range e.Answers {
			answers[i] = append([]string{}, a.Chosen...)
		}
		text, err := list(answers)
		if err != nil {
			return err
		}
		n, err := f.exec(`UPDATE questions SET answers = ?, dismissed = ?, answered_by = ?, person = ?, feedback = ?, waited_ms = ?, answered_event = ?, answered_position = ?, answered_time = ?
			WHERE question = ? AND answered_event IS NULL`, text, e.Dismissed, string(e.By), e.Person, e.Feedback, e.WaitedMS, v.ID, v.Position, v.Time, e.Question)
		if err != nil || n == 0 {
			return err
		}
		return f.waited(s, "SELECT message, call, session FROM questions WHERE question = ?", e.Question, e.WaitedMS, v)
	}
	return nil
}

// requested counts a request of a call, and writes the paths that it names, if the log has
// the call.
func (f *filler) requested(s *sessionRow, message domain.MessageID, id domain.CallID, paths []string) error {
	c, err := f.find(s, message, id)
	if c == nil {
		return err
	}
	c.Requests++
	for _, name := range paths {
		if err := f.uses(c, pathUse{name, accessOf(c.Tool)}, fromRequest); err != nil {
			return err
		}
	}
	return nil
}

// waited adds the time between a request and its end to the call that the statement of
// lookup returns for the request.
func (f *filler) waited(s *sessionRow, lookup string, request domain.PermissionID, ms int64, v events.Envelope) error {
	var message domain.MessageID
	var session domain.SessionID
	var id domain.CallID
	err := f.query(func(row []driver.Value) error {
		c := &columnReader{row: row}
		c.text(&message)
		id = domain.CallID(c.string())
		c.text(&session)
		return c.err
	}, lookup, request)
	if err == nil && session != s.ID {
		s, err = f.session(session, v)
	}
	if err != nil {
		return err
	}
	c, err := f.find(s, message, id)
	if c != nil {
		c.WaitedMS += ms
	}
	return err
}

// applyApproval writes the row of a saved approval, or ends that of a revoked one. The same
// approval saved again ends the one before, as in the projection of approvals of
// runner/engine.
func (f *filler) applyApproval(v events.Envelope) error {
	var e events.ApprovalRevoked
	saved, save := v.Event.(events.ApprovalSaved)
	if save {
		e = events.ApprovalRevoked{Agent: saved.Agent, Location: saved.Location, Action: saved.Action, Resource: saved.Resource}
	} else {
		e = v.Event.(events.ApprovalRevoked)
	}
	_, err := f.exec(`UPDATE approvals SET ended_position = ?, ended_event = ? WHERE ended_position IS NULL AND coalesce(agent, 'build') = coalesce(?, 'build')
		AND location IS ? AND action IS ? AND resource IS ?`, v.Position, v.ID, string(e.Agent), e.Location, e.Action, e.Resource)
	if err != nil || !save {
		return err
	}
	_, err = f.exec("INSERT INTO approvals (event, position, time, permission, session, agent, location, action, resource, expires, person) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		v.ID, v.Position, v.Time, saved.Permission, v.Correlation, string(saved.Agent), saved.Location, saved.Action, saved.Resource, saved.Expires, saved.Person)
	return err
}
