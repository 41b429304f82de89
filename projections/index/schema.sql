-- One row: the log from which the index was filled, and how far.
CREATE TABLE index_state (
  id             INTEGER PRIMARY KEY CHECK (id = 1), -- always 1
  schema_version INTEGER NOT NULL, -- the version of this schema, as in PRAGMA user_version
  full_text      INTEGER NOT NULL, -- 1 if the index has the tables texts, text_search and text_words
  events         INTEGER NOT NULL, -- the number of events read, of all kinds
  first_event    TEXT, -- the first event of the log, which identifies the log
  first_position TEXT, -- its position
  last_event     TEXT, -- the last event read
  last_position  TEXT, -- its position, with both parts if they differ
  last_stream    TEXT, -- its stream
  last_revision  INTEGER, -- its revision
  last_time      TEXT -- its time
) STRICT;

-- The events whose kind or version the program that filled the index did not know. A program that knows one of them fills the index anew.
CREATE TABLE unknown_events (
  event    TEXT PRIMARY KEY, -- the event
  kind     TEXT NOT NULL, -- its kind
  version  INTEGER NOT NULL, -- the version of its kind
  stream   TEXT NOT NULL, -- its stream
  revision INTEGER NOT NULL, -- its revision
  position INTEGER NOT NULL -- its position
) STRICT, WITHOUT ROWID;

-- The runs of programs that used the ledger.
CREATE TABLE processes (
  process          TEXT PRIMARY KEY, -- the process
  host             TEXT, -- the name of the machine
  pid              INTEGER, -- the process ID on that machine
  program          TEXT, -- the name of the program
  version          TEXT, -- the version of the program
  address          TEXT, -- the URL at which it serves its outputs to other nodes
  lease_until      TEXT, -- the end of the lease; null: it has no lease
  started_position INTEGER, -- the position of its start
  started_time     TEXT, -- the time of its start
  stopped_position INTEGER, -- the position of its first recorded end; null while it runs
  stopped_time     TEXT, -- the time of that end
  stop_reason      TEXT -- the reason of that end, such as ended or process lost
) STRICT, WITHOUT ROWID;

-- The layers of the registry. A layer is open from opened_position on and before closed_position.
CREATE TABLE layers (
  layer           TEXT PRIMARY KEY, -- the layer
  placement       TEXT NOT NULL, -- application, location or session, in rising precedence
  location        TEXT, -- the folder of a location layer
  session         TEXT, -- the session of a session layer
  process         TEXT, -- the process that opened it; null in an import
  observed        INTEGER NOT NULL, -- 1 if an import inferred the layer from the use of its tools
  opened_position INTEGER NOT NULL, -- the position of its opening
  opened_time     TEXT NOT NULL, -- the time of its opening
  closed_position INTEGER, -- the position of its closing; null while it is open
  closed_time     TEXT, -- the time of its closing
  closed_event    TEXT, -- the event that closed it
  closed_reason   TEXT -- the reason, such as ended or process lost
) STRICT, WITHOUT ROWID;
CREATE INDEX layers_closed ON layers (closed_position, opened_position);
CREATE INDEX layers_closed_time ON layers (closed_time);
CREATE INDEX layers_process ON layers (process, placement, location) WHERE process IS NOT NULL AND placement <> 'session';
CREATE INDEX layers_session ON layers (session) WHERE session IS NOT NULL;
CREATE INDEX layers_location ON layers (location) WHERE location IS NOT NULL;
CREATE INDEX layers_application ON layers (opened_position) WHERE placement = 'application';

-- The registrations. Each has the tools that one event put into effect, from registered_position on and before ended_position.
CREATE TABLE registrations (
  registration        TEXT PRIMARY KEY, -- the registration
  layer               TEXT NOT NULL, -- its layer
  scope               TEXT NOT NULL, -- the scope that owns it
  registered_position INTEGER NOT NULL, -- the position of its event
  registered_time     TEXT NOT NULL, -- the time of its event
  closed_position     INTEGER, -- the position of its own closing; null: it has none
  closed_time         TEXT, -- the time of its own closing
  closed_event        TEXT, -- the event that closed it
  closed_reason       TEXT, -- the reason, such as scope closed
  ended_position      INTEGER -- the position of its closing or of the closing of its layer, the earlier one; null while it is in effect or hidden
) STRICT, WITHOUT ROWID;
CREATE INDEX registrations_layer ON registrations (layer, registered_position);

-- The tools of the registrations.
CREATE TABLE registered_tools (
  registration  TEXT NOT NULL, -- the registration
  place         INTEGER NOT NULL, -- the place of the tool in the registration, from 0
  tool          TEXT NOT NULL, -- the name of the tool
  description   TEXT, -- the text about the tool for the model
  action        TEXT, -- the permission action
  fingerprint   TEXT, -- the SHA-256 of the definition and the action, in hexadecimal
  idempotent    INTEGER NOT NULL, -- 1 if the tool promises that a second run has no further effect
  asks_first    INTEGER NOT NULL, -- 1 if the tool requests permission before its first side effect
  input_schema  TEXT, -- the JSON Schema of the input
  output_schema TEXT, -- the JSON Schema of the output
  available     TEXT, -- the conditions under which turns offer the tool, as JSON; null: in every turn
  PRIMARY KEY (registration, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX registered_tools_tool ON registered_tools (tool, registration);

-- The tools that were not registered.
CREATE TABLE refused_tools (
  registration TEXT NOT NULL, -- the registration of the same request
  place        INTEGER NOT NULL, -- the place of the tool among the refused ones, from 0
  tool         TEXT NOT NULL, -- the name as it was given
  reason       TEXT, -- the error text
  PRIMARY KEY (registration, place)
) STRICT, WITHOUT ROWID;

-- The sessions, with their counts.
CREATE TABLE sessions (
  session            TEXT PRIMARY KEY, -- the session
  number             INTEGER NOT NULL UNIQUE, -- the place of the session in the order of first events, from 1
  agent              TEXT, -- the agent of the next turn
  location           TEXT, -- the workspace
  opened_location    TEXT, -- the workspace that the opening names
  model              TEXT, -- the model of the opening, or else of the first later setting
  parent             TEXT, -- the session that started this one
  parent_message     TEXT, -- the reply of the parent with the call that started this one
  parent_call        TEXT, -- the call of the parent that started this one
  origin             TEXT, -- run or import
  origin_format      TEXT, -- the file format of an import
  origin_source      TEXT, -- the name of the session in the imported file
  vcs                TEXT, -- the program of the working copy as the session opened, such as git; null: no working copy, or not known
  vcs_commit         TEXT, -- the commit that was checked out
  vcs_branch         TEXT, -- the branch that was checked out
  vcs_state          TEXT, -- clean or dirty; null: not known
  opened_time        TEXT NOT NULL, -- the time of the first event
  opened_position    INTEGER NOT NULL, -- the position of the first event
  last_time          TEXT NOT NULL, -- the time of the last event
  last_position      INTEGER NOT NULL, -- the position of the last event
  revision           INTEGER NOT NULL, -- the length of the stream
  title              TEXT, -- the first 256 bytes of the first prompt
  prompts            INTEGER NOT NULL, -- the number of prompts
  turns              INTEGER NOT NULL, -- the number of turns
  replies            INTEGER NOT NULL, -- the number of replies
  calls              INTEGER NOT NULL, -- the number of calls that replies ask for
  open_calls         INTEGER NOT NULL, -- those of them without a settlement
  failed_calls       INTEGER NOT NULL, -- those of them settled without success
  input_tokens       INTEGER NOT NULL, -- the sum over its replies
  output_tokens      INTEGER NOT NULL, -- the sum over its replies
  cache_read_tokens  INTEGER NOT NULL, -- the sum over its replies
  cache_write_tokens INTEGER NOT NULL, -- the sum over its replies
  provider_failures  INTEGER NOT NULL, -- the number of failed requests to the provider
  unknown_events     INTEGER NOT NULL, -- the number of events of unknown kinds
  interrupted        INTEGER NOT NULL, -- 1 after an interruption without a later prompt or turn
  closed             INTEGER NOT NULL -- 1 if the session was closed
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_agent ON sessions (agent, number);
CREATE INDEX sessions_last ON sessions (last_time);
CREATE INDEX sessions_turned ON sessions (number) WHERE turns > 0;

-- The distinct offers of turns. Most turns repeat the offer of the turn before.
CREATE TABLE offers (
  offer  INTEGER PRIMARY KEY, -- the number of the offer, from 1
  digest TEXT NOT NULL UNIQUE, -- the SHA-256 of its tools, by which the index finds it
  tools  INTEGER NOT NULL -- the number of its tools
) STRICT;

-- The tools of each offer, in the order of the request to the model.
CREATE TABLE offered_tools (
  offer        INTEGER NOT NULL, -- the offer
  place        INTEGER NOT NULL, -- the place of the tool, from 0
  tool         TEXT NOT NULL, -- the name of the tool
  registration TEXT, -- the offered registration
  layer        TEXT, -- the layer of the registration
  fingerprint  TEXT, -- the fingerprint of the tool
  PRIMARY KEY (offer, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX offered_tools_registration ON offered_tools (registration);

-- The turns. A turn is one request to the model.
CREATE TABLE turns (
  session       TEXT NOT NULL, -- the session
  turn          TEXT NOT NULL, -- the turn
  message       TEXT, -- the message reserved for the reply
  agent         TEXT, -- the agent
  model         TEXT, -- the requested model
  provider      TEXT, -- the program that serves the model
  client        TEXT, -- the program that runs the session
  offer         INTEGER NOT NULL, -- the offer, in offers
  hidden        INTEGER NOT NULL, -- the number of hidden tools, in hidden_tools
  disabled      INTEGER NOT NULL, -- 1 if the maximum number of steps was reached, so that no tool is offered
  observed      INTEGER NOT NULL, -- 1 if an import saw the tools used; others may have been offered
  system        TEXT, -- the digest of the system prompt
  instruction   TEXT, -- the digest of the text behind the messages
  rules         TEXT, -- the digest of the permission rules
  rules_text    TEXT, -- the digest of their text with the file and line of each rule, in recorded_texts
  parameters    TEXT, -- the digest of the parameters of the request
  schemas       TEXT, -- the digest of the tools as sent
  compacted     TEXT, -- the event that lists the messages which the request leaves out
  event         TEXT NOT NULL, -- its first event
  position      INTEGER NOT NULL, -- the position of that event
  revision      INTEGER NOT NULL, -- the revision of that event
  time          TEXT NOT NULL, -- the time of that event
  last_position INTEGER NOT NULL, -- the position of its last event; an import may have several
  last_revision INTEGER NOT NULL, -- the revision of its last event
  PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_turn ON turns (turn);
CREATE INDEX turns_position ON turns (position);
CREATE INDEX turns_session ON turns (session, position);
CREATE INDEX turns_time ON turns (time);

-- The texts that the log records once and names by their digests, such as system prompts. Their bytes are in the log alone.
CREATE TABLE recorded_texts (
  session  TEXT NOT NULL, -- the session
  digest   TEXT NOT NULL, -- the digest of the text
  revision INTEGER NOT NULL, -- the revision of the first event that records it
  PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;

-- The tools in effect that a turn did not offer, because of a rule or of unmet conditions.
CREATE TABLE hidden_tools (
  session       TEXT NOT NULL, -- the session
  turn          TEXT NOT NULL, -- the turn
  place         INTEGER NOT NULL, -- the place of the tool among the hidden ones, from 0
  tool          TEXT NOT NULL, -- the name of the tool
  registration  TEXT, -- its registration
  layer         TEXT, -- the layer of the registration
  rule_action   TEXT, -- the action pattern of the rule that hid it; null: no rule did
  rule_resource TEXT, -- the resource pattern of that rule
  rule_effect   TEXT, -- the effect of that rule
  rule_source   TEXT, -- the file and line of that rule
  unmet         TEXT, -- the unmet conditions, as a JSON array; null: none
  PRIMARY KEY (session, turn, place)
) STRICT, WITHOUT ROWID;

-- The prompts, the replies and the refused replies. Several events of one reply are one row.
CREATE TABLE messages (
  id                 INTEGER PRIMARY KEY, -- the place of the message in the order of first events, from 1
  session            TEXT NOT NULL, -- the session
  message            TEXT NOT NULL, -- the message
  kind               TEXT NOT NULL, -- prompt, reply or refused
  turn               TEXT, -- the turn that a reply answers
  model              TEXT, -- the model that replied
  finish             TEXT, -- the stop reason of the provider
  reason             TEXT, -- why a reply was refused
  text               TEXT, -- the first 256 bytes of the text of the first event
  bytes              INTEGER NOT NULL, -- the size of the complete text
  calls              INTEGER NOT NULL, -- the number of calls asked for
  input_tokens       INTEGER NOT NULL, -- input tokens that were neither read from the cache of the provider nor written to it
  output_tokens      INTEGER NOT NULL, -- generated tokens
  cache_read_tokens  INTEGER NOT NULL, -- input tokens read from the cache of the provider
  cache_write_tokens INTEGER NOT NULL, -- input tokens written to the cache of the provider
  event              TEXT NOT NULL, -- its first event
  position           INTEGER NOT NULL, -- the position of that event
  revision           INTEGER NOT NULL, -- the revision of that event
  time               TEXT NOT NULL, -- the time of that event
  UNIQUE (session, message, kind)
) STRICT;
CREATE INDEX messages_time ON messages (time);

-- The calls. A row whose asked_time is null is an orphan: a start or a result that no reply asks for.
CREATE TABLE calls (
  id                     INTEGER PRIMARY KEY, -- the place of the call in the order of first events, from 1
  session                TEXT NOT NULL, -- the session
  message                TEXT NOT NULL, -- the reply that contains the call
  call                   TEXT NOT NULL, -- the ID that the provider gave the call; unique within the message only
  turn                   TEXT, -- the turn of the reply
  parent                 TEXT, -- the call of the same message that made this one
  tool                   TEXT, -- the name of the tool, as the model wrote it
  title                  TEXT, -- one line about the call
  agent                  TEXT, -- the agent of the session at the first event of the call
  location               TEXT, -- the workspace of the session at that event
  imported               INTEGER NOT NULL, -- 1 if the session was imported
  state                  TEXT, -- asked, begun or settled; null: only late results are on record
  outcome                TEXT, -- how the call ended, such as succeeded; null while it is open
  began                  INTEGER NOT NULL, -- 1 if the settlement says that the tool ran
  interruption           TEXT, -- the cause of an interruption
  input                  TEXT, -- the input as the model wrote it; if input_complete is 0, its first 256 bytes
  input_complete         INTEGER NOT NULL, -- 1 if input is the whole input
  shown                  TEXT, -- the first 256 bytes of the text that the model reads
  error                  TEXT, -- the first 256 bytes of the text of a call that did not succeed
  detail                 TEXT, -- the first 256 bytes of the detail for the operator
  registration           TEXT, -- the offered registration
  layer                  TEXT, -- the layer of the offered registration
  fingerprint            TEXT, -- the fingerprint of the offered tool
  effective_registration TEXT, -- the registration in effect when the call was resolved
  agrees                 INTEGER NOT NULL, -- 1 if the fingerprints of the two are known and equal
  changed_by             TEXT, -- the event since which the two differ
  rule_action            TEXT, -- the action pattern of the rule that denied the call; null: no rule did
  rule_resource          TEXT, -- the resource pattern of that rule
  rule_source            TEXT, -- the file and line of that rule
  process                TEXT, -- the process that ran the call
  asked_time             TEXT, -- the time of the reply that asks for the call
  asked_position         INTEGER, -- the position of that event
  asked_revision         INTEGER, -- the revision of that event
  asked_event            TEXT, -- that event
  started_time           TEXT, -- the time of the first start
  started_position       INTEGER, -- the position of that event
  started_revision       INTEGER, -- the revision of that event
  started_event          TEXT, -- that event
  settled_time           TEXT, -- the time of the settlement
  settled_position       INTEGER, -- the position of that event
  settled_revision       INTEGER, -- the revision of that event
  settled_event          TEXT, -- that event, whose ID is that of the settlement
  ran_ms                 INTEGER NOT NULL, -- the time from the start to the return of the tool, in milliseconds
  waited_ms              INTEGER NOT NULL, -- the time that the call waited for decisions and answers, in milliseconds
  requests               INTEGER NOT NULL, -- the number of its permission requests and questions
  late_results           INTEGER NOT NULL, -- the number of results that came after the settlement
  input_bytes            INTEGER NOT NULL, -- the size of the whole input
  shown_bytes            INTEGER NOT NULL, -- the size of the whole text that the model reads; 0 while the call is open
  UNIQUE (message, call, session)
) STRICT;
CREATE INDEX calls_call ON calls (call);
CREATE INDEX calls_session ON calls (session);
CREATE INDEX calls_turn ON calls (turn) WHERE turn IS NOT NULL;
CREATE INDEX calls_asked ON calls (asked_time) WHERE asked_time IS NOT NULL;
CREATE INDEX calls_orphans ON calls (id) WHERE asked_time IS NULL;
CREATE INDEX calls_tool ON calls (tool, id);
CREATE INDEX calls_agent ON calls (agent, id);
CREATE INDEX calls_open ON calls (id) WHERE state <> 'settled';
CREATE INDEX calls_failed ON calls (outcome, id) WHERE outcome <> 'succeeded';

-- The permission requests of calls, with their decisions.
CREATE TABLE permissions (
  permission         TEXT PRIMARY KEY, -- the request
  session            TEXT NOT NULL, -- the session
  message            TEXT, -- the reply that contains the call
  call               TEXT, -- the call
  agent              TEXT, -- the agent
  action             TEXT, -- the requested action
  resources          TEXT NOT NULL, -- the objects of the action, as a JSON array
  requested_event    TEXT NOT NULL, -- the event of the request
  requested_position INTEGER NOT NULL, -- its position
  requested_time     TEXT NOT NULL, -- its time
  effect             TEXT, -- allow or deny; null while the request is undecided
  decided_by         TEXT, -- rule, approval, user, headless or recovery
  scope              TEXT, -- once, always or reject; null if no person was asked
  person             TEXT, -- the user of the operating system who decided
  feedback           TEXT, -- the text of the person for the model
  rule_action        TEXT, -- the action pattern of the denying rule
  rule_resource      TEXT, -- the resource pattern of the denying rule
  rule_source        TEXT, -- the file and line of the denying rule
  approvals          TEXT, -- the saved approvals that allowed resources of the request, as a JSON array of {event, resource}; null: none
  waited_ms          INTEGER, -- the time from request to decision, in milliseconds
  decided_event      TEXT, -- the event of the decision
  decided_position   INTEGER, -- its position
  decided_time       TEXT -- its time
) STRICT, WITHOUT ROWID;
CREATE INDEX permissions_session ON permissions (session, message, call);
CREATE INDEX permissions_requested ON permissions (requested_position);
CREATE INDEX permissions_time ON permissions (requested_time);
CREATE INDEX permissions_by ON permissions (decided_by) WHERE decided_by IS NOT NULL;
CREATE INDEX permissions_person ON permissions (person) WHERE person IS NOT NULL;
CREATE INDEX permissions_open ON permissions (requested_position) WHERE decided_event IS NULL;

-- The rules that allowed requests of calls, or resources of them, without a question. Such a request has no row in permissions unless an approval or a person allowed the rest of it.
CREATE TABLE allowed_rules (
  call     INTEGER NOT NULL, -- the id of the call, in calls
  place    INTEGER NOT NULL, -- the place of the rule among those of the call, from 0
  action   TEXT, -- the action pattern of the rule
  resource TEXT, -- the resource pattern of the rule
  source   TEXT, -- the file and line of the rule
  PRIMARY KEY (call, place)
) STRICT, WITHOUT ROWID;

-- The approvals that persons saved by answering a permission request with always.
CREATE TABLE approvals (
  event          TEXT PRIMARY KEY, -- the event that saved it
  position       INTEGER NOT NULL, -- its position
  time           TEXT NOT NULL, -- its time
  permission     TEXT, -- the request that the answer decided
  session        TEXT, -- the session of the request
  agent          TEXT, -- the agent to which the approval applies; null: build, of older programs
  location       TEXT, -- the workspace to which it applies
  action         TEXT, -- the approved action
  resource       TEXT, -- the pattern of the approved resources
  expires        TEXT, -- the time at which it ends; null: never
  person         TEXT, -- the user of the operating system who approved
  ended_position INTEGER, -- the position of its revocation, or of the same approval saved again; null: neither
  ended_event    TEXT -- that event
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_open ON approvals (position) WHERE ended_position IS NULL;

-- The questions of calls to a person, with their answers.
CREATE TABLE questions (
  question          TEXT PRIMARY KEY, -- the request
  session           TEXT NOT NULL, -- the session
  message           TEXT, -- the reply that contains the call
  call              TEXT, -- the call
  agent             TEXT, -- the agent
  questions         TEXT NOT NULL, -- the questions as shown, as a JSON array
  asked_event       TEXT NOT NULL, -- the event of the request
  asked_position    INTEGER NOT NULL, -- its position
  asked_time        TEXT NOT NULL, -- its time
  answers           TEXT, -- the answers, as a JSON array of arrays of texts; null: none
  dismissed         INTEGER, -- 1 if the questions were not answered
  answered_by       TEXT, -- user, headless or recovery
  person            TEXT, -- the user of the operating system who answered
  feedback          TEXT, -- the text of the person for the model
  waited_ms         INTEGER, -- the time from question to answer, in milliseconds
  answered_event    TEXT, -- the event of the answer; null while it is open
  answered_position INTEGER, -- its position
  answered_time     TEXT -- its time
) STRICT, WITHOUT ROWID;
CREATE INDEX questions_session ON questions (session, message, call);
CREATE INDEX questions_asked ON questions (asked_position);
CREATE INDEX questions_time ON questions (asked_time);
CREATE INDEX questions_by ON questions (answered_by) WHERE answered_by IS NOT NULL;
CREATE INDEX questions_person ON questions (person) WHERE person IS NOT NULL;
CREATE INDEX questions_open ON questions (asked_position) WHERE answered_event IS NULL;

-- The outputs that are stored outside the log, which a settlement names.
CREATE TABLE outputs (
  output          TEXT PRIMARY KEY, -- the reference, output://SETTLEMENT/CHANNEL
  session         TEXT NOT NULL, -- the session
  message         TEXT NOT NULL, -- the reply that contains the call
  call            TEXT NOT NULL, -- the call
  settlement      TEXT NOT NULL, -- the event that names it first
  bytes           INTEGER NOT NULL, -- its size
  lines           INTEGER NOT NULL, -- the number of its line ends plus one
  mime            TEXT, -- its media type
  sha256          TEXT, -- its digest, in hexadecimal
  position        INTEGER NOT NULL, -- the position of the settlement
  pruned_position INTEGER, -- the position of its removal; null: it is kept
  pruned_time     TEXT, -- the time of its removal
  policy          TEXT -- the rule that removed it
) STRICT, WITHOUT ROWID;

-- The files that calls read or changed, as far as their tools report them.
CREATE TABLE files (
  id       INTEGER PRIMARY KEY, -- the place of the access in the log, from 1
  path     TEXT NOT NULL, -- the canonical absolute path
  access   TEXT, -- the kind of access, such as read or write
  version  TEXT, -- the content after the access, such as sha256:HEX; null: not known, or deleted
  session  TEXT NOT NULL, -- the session
  message  TEXT NOT NULL, -- the reply that contains the call
  call     TEXT NOT NULL, -- the call
  position INTEGER NOT NULL, -- the position of the settlement
  time     TEXT NOT NULL -- the time of the settlement
) STRICT;
CREATE INDEX files_path ON files (path, position);

-- The paths of calls: those that tools report, that inputs name, and that permission requests name.
CREATE TABLE paths (
  path INTEGER PRIMARY KEY, -- the number of the path, from 1
  name TEXT NOT NULL UNIQUE, -- the path, absolute unless the workspace is not known, or it begins with ~
  base TEXT NOT NULL -- its last element
) STRICT;
CREATE INDEX paths_base ON paths (base);

-- The calls that read, wrote or ran on a path, or wanted to: the outcome of the call says whether it ran.
CREATE TABLE path_uses (
  path   INTEGER NOT NULL, -- the path, in paths
  call   INTEGER NOT NULL, -- the id of the call, in calls
  access TEXT NOT NULL, -- read, write or run, by the report of the tool or else by its name
  source TEXT NOT NULL, -- result: the tool reported the file; input: the members path, file_path, filePath, notebook_path and workdir, the files of a patch, or a word of a command line that looks like a path; request: a permission request for a folder
  PRIMARY KEY (path, call, access, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX path_uses_call ON path_uses (call);

-- The failed requests to providers of models.
CREATE TABLE provider_failures (
  event    TEXT PRIMARY KEY, -- the event
  session  TEXT NOT NULL, -- the session
  turn     TEXT, -- the turn of the request
  provider TEXT, -- the server
  model    TEXT, -- the model
  failure  TEXT, -- the kind of the failure, such as rate_limited
  status   INTEGER, -- the HTTP status
  attempt  INTEGER, -- the number of the attempt, from 1
  request  TEXT, -- the ID that the server gave the request
  detail   TEXT, -- the error text
  position INTEGER NOT NULL, -- the position of the event
  time     TEXT NOT NULL -- the time of the event
) STRICT, WITHOUT ROWID;
CREATE INDEX provider_failures_session ON provider_failures (session, position);

-- The texts of sessions, for search: prompts, replies, inputs of calls, and the texts that the model reads of calls.
CREATE TABLE texts (
  id       INTEGER PRIMARY KEY, -- the place of the text in the log, from 1; the rowid in text_search
  kind     TEXT NOT NULL, -- prompt, reply, input or shown
  session  TEXT NOT NULL, -- the session
  message  TEXT NOT NULL, -- the prompt or reply
  call     TEXT, -- the call of an input or of a shown text
  position INTEGER NOT NULL, -- the position of the event
  bytes    INTEGER NOT NULL, -- the size of the complete text
  text     TEXT NOT NULL -- its first 8,192 bytes, whole characters
) STRICT;
CREATE INDEX texts_long ON texts (id) WHERE bytes > 8192;

-- The full-text index of texts (FTS5): SELECT rowid FROM text_search WHERE text_search MATCH 'words'.
CREATE VIRTUAL TABLE text_search USING fts5 (
  text, -- the column of texts
  content='texts', content_rowid='id'
);

-- The words of text_search with their places (fts5vocab).
CREATE VIRTUAL TABLE text_words USING fts5vocab ('text_search', 'instance');

-- The beginnings and ends of names, by which commands find shortened IDs. A new segment begins every 131,072 events, so that rows are added to few pages.
CREATE TABLE names (
  segment INTEGER NOT NULL, -- the number of the segment, from 0
  key     TEXT NOT NULL, -- s session, t turn, c call or m message; > and the first 32 characters, without a prefix such as toolu_ if there is one, or < and the last 12 characters backwards; in lower case
  id      INTEGER NOT NULL, -- the number of a session, the position of a turn, the id of a call or message
  PRIMARY KEY (segment, key, id)
) STRICT, WITHOUT ROWID;
