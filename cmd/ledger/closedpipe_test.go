//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// unreadPipe returns the write end of a pipe whose read end is closed, so that each
// write to it fails. It holds syscall.ForkLock so that no process started by another
// test inherits the read end.
func unreadPipe(t *testing.T) *os.File {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	return writer
}

// pipeCases maps the path of each command to argument lists with which it writes
// results. runUnread replaces STORE by the folder of a seeded store and DIR by a new
// folder.
var pipeCases = map[string][][]string{
	"agent ls":                      {{}},
	"agent show":                    {{"build"}},
	"approval ls":                   {{}},
	"approval revoke":               nil, // prints no result without an approval; the long counts try its errors
	"call ls":                       {{}},
	"call prove":                    {{"call_3"}},
	"call show":                     {{"call_3"}},
	"completion bash":               {{}},
	"completion fish":               {{}},
	"completion powershell":         {{}},
	"completion zsh":                {{}},
	"consumer forget":               nil, // like approval revoke
	"consumer ls":                   {{}},
	"consumer retry":                nil,
	"consumer show":                 nil,
	"demo":                          {{}},
	"doctor":                        {{}},
	"event ls":                      {{}},
	"event tail":                    {{}, {"-f"}},
	"export calls":                  {{"--format", "csv"}},
	"export session":                {{"@last"}, {"@last", "--to", "DIR/session.md"}},
	"export registrations":          {{"--format", "jsonl"}},
	"export store":                  {{"--raw"}},
	"export turns":                  {{"--format", "parquet"}},
	"file history":                  {{"go.mod"}},
	"help":                          {{}, {"call", "ls"}},
	"import atif":                   {{"DIR/session.json"}},
	"import claude-code":            {{"DIR/session.jsonl"}},
	"import jsonl":                  {{"DIR/kept.jsonl", "--store", "DIR/imported"}},
	"import codex":                  {{"DIR/rollout.jsonl"}},
	"import opencode":               {{"DIR/export.json"}},
	"index rebuild":                 {{}},
	"index status":                  {{}},
	"output":                        {{"call_2"}, {"call_2", "--stat"}},
	"permission ls":                 {{}},
	"publish":                       {{"--to", "file:DIR/log.jsonl", "--name", "n"}},
	"replay":                        {{"--dry-run"}},
	"recover":                       {{}},
	"registry at":                   {{"now"}},
	"resume":                        {{"@last", "--script", "DIR/session.json", "--workspace", "DIR"}},
	"run":                           {{"--script", "DIR/session.json", "--workspace", "DIR"}},
	"search":                        {{"the"}},
	"serve":                         {{"--listen", "127.0.0.1:0"}},
	"serve user":                    {{"name"}},
	"session diff":                  {{"@last", "@last"}},
	"session fork":                  {{}},
	"session ls":                    {{}},
	"session play":                  nil, // needs a terminal
	"session show":                  {{}},
	"session tail":                  {{}, {"-f"}},
	"sql":                           {{"SELECT * FROM sessions"}, {"SELECT * FROM sessions", "--csv"}},
	"stats":                         {{}},
	"store backup":                  {{"DIR/backup"}},
	"store bench":                   {{"--help"}}, // a real run measures for a minute before it prints
	"store check":                   {{}},
	"store compact":                 {{}},
	"store copy":                    {{"STORE", "DIR/copy"}},
	"store info":                    {{}},
	"store restore":                 {{"DIR/kept", "--store", "DIR/restored"}},
	"turn ls":                       {{}},
	"turn show":                     {{}, {"--schemas"}},
	"verify":                        {{}},
	"version":                       {{}},
	cobra.ShellCompRequestCmd:       {{"call", "show", ""}},
	cobra.ShellCompNoDescRequestCmd: {{"call", "show", ""}},
}

// leaves returns the paths of all commands that run by themselves: the leaves of the
// command tree, and serve and bench. It does not descend into bench.
func leaves(cmd *cobra.Command, path string) []string {
	var all []string
	for _, c := range cmd.Commands() {
		at := strings.TrimSpace(path + " " + c.Name())
		if !c.HasSubCommands() || c.Name() == "serve" || c.Name() == "bench" {
			all = append(all, at)
		}
		if c.HasSubCommands() && c.Name() != "bench" {
			all = append(all, leaves(c, at)...)
		}
	}
	return all
}

// Each command exits with status ExitUnread and prints no error if the reader of its
// standard output or of its standard error has closed the pipe. Tables, JSON, help and
// error texts behave alike.
func TestEachCommandEndsQuietlyAtAClosedPipe(t *testing.T) {
	t.Parallel()
	a := newApp(&render.Printer{Env: os.LookupEnv, Now: time.Now}, nil, rand.Reader)
	root := a.root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	dir := t.TempDir()
	store := newSeededStore(t)
	session := `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},{"source":"agent","message":"done"}]}`
	record := `{"type":"user","uuid":"0d3c0e0f-0000-4000-8000-000000000001","parentUuid":null,"sessionId":"0d3c0e0f-0000-4000-8000-000000000002",` +
		`"timestamp":"2026-01-01T00:00:00.000Z","version":"2.0.0","cwd":"/w","isSidechain":false,"userType":"external","message":{"role":"user","content":"hello"}}` + "\n"
	export := `{"info":{"id":"ses_a","directory":"/w"},"messages":[]}`
	rollout := `{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"id":"a","cwd":"/w"}}` + "\n"
	for name, text := range map[string]string{"session.json": session, "session.jsonl": record, "rollout.jsonl": rollout, "export.json": export} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if made := ledger(t, store, "store", "backup", filepath.Join(dir, "kept")); made.exit != 0 {
		t.Fatalf("store backup = %d %s", made.exit, made.err)
	}
	if made := ledger(t, store, "export", "store", "--raw", "--to", filepath.Join(dir, "kept.jsonl")); made.exit != 0 {
		t.Fatalf("export store = %d %s", made.exit, made.err)
	}
	for _, path := range leaves(root, "") {
		cases, known := pipeCases[path]
		if !known {
			t.Errorf("no case for ledger %s: add one to pipeCases", path)
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			run := func(stdout, stderr bool, args ...string) {
				t.Helper()
				exit, told := runUnread(t, store, dir, stdout, stderr, args...)
				if exit != fault.ExitUnread || strings.Contains(told, "error") {
					t.Errorf("ledger %s = %d, it tells %q; want %d and silence", strings.Join(args, " "), exit, told, fault.ExitUnread)
				}
			}
			words := strings.Fields(path)
			// All output formats of a command go through the same writer, so only two
			// commands are tried with every format, except with the long counts.
			thorough := path == "call ls" || path == "run" || repeats(0, 1) > 0
			for _, c := range cases {
				run(true, false, slices.Concat(words, c)...)
				formats := path != "demo" && path != "serve" && !strings.HasPrefix(path, "__") && !slices.Contains(c, "--csv")
				if thorough && formats {
					run(true, false, slices.Concat(words, c, []string{"-o", "json"})...)
				}
			}
			if thorough && !strings.HasPrefix(path, "__") && path != "help" {
				run(true, false, append(slices.Clone(words), "--help")...)
				run(false, true, append(slices.Clone(words), "--bogus")...)
				run(false, true, append(slices.Clone(words), "--bogus", "-o", "json")...)
			}
		})
	}
}

// runUnread runs a command in copies of a store and a folder, with its standard output,
// its standard error or both connected to a closed pipe. It returns the exit status and
// the text of standard error if that is open.
func runUnread(t *testing.T, store, dir string, stdout, stderr bool, args ...string) (int, string) {
	t.Helper()
	own, fresh := filepath.Join(t.TempDir(), "store"), t.TempDir()
	for from, to := range map[string]string{store: own, dir: fresh} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(strings.ReplaceAll(args[i], "DIR", fresh), "STORE", own)
	}
	cmd := exec.CommandContext(t.Context(), commandPath(), args...)
	cmd.Env = append(os.Environ(), "LEDGER_STORE="+own)
	cmd.Stdin = strings.NewReader("a password\n")
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	if stdout {
		cmd.Stdout = unreadPipe(t)
	}
	if stderr {
		cmd.Stderr = unreadPipe(t)
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), told.String()
}

// A long listing ends when its reader closes the pipe after the first line, with status
// ExitUnread and no error text.
func TestAListingEndsWhenItsReaderLeaves(t *testing.T) {
	t.Parallel()
	store := longStore(t, 20_000)
	for _, args := range [][]string{{"event", "ls"}, {"event", "ls", "-o", "json"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			exit, told := readFirst(t, store, args, nil)
			if exit != fault.ExitUnread || told != "" {
				t.Errorf("%v | head -1 = %d, it tells %q; want %d and silence", args, exit, told, fault.ExitUnread)
			}
		})
	}
}

// A command that follows the log ends when its reader closes the pipe, even if no
// record arrives that it could write.
func TestFollowingEndsWhenItsReaderLeaves(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	for _, args := range [][]string{{"event", "tail", "-f"}, {"session", "tail", "-f", "-o", "jsonl"}, {"event", "tail", "-f", "-o", "json"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			exit, told := readFirst(t, store, args, nil)
			if told = strings.TrimSpace(strings.TrimPrefix(told, "— caught up, following —")); exit != fault.ExitUnread || told != "" {
				t.Errorf("%v | head -1 = %d, it tells %q; want %d and silence", args, exit, told, fault.ExitUnread)
			}
		})
	}
}

// readFirst runs a command, reads the first line of its standard output and closes the
// pipe. prepare may alter the command before it starts. It returns the exit status and
// the text of standard error.
func readFirst(t *testing.T, store string, args []string, prepare func(*exec.Cmd)) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), append([]string{"--store", store}, args...)...)
	var told bytes.Buffer
	cmd.Stderr = &told
	if prepare != nil {
		prepare(cmd)
	}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// A small buffer, so that the test reads little more than the first line.
	if _, err := bufio.NewReaderSize(pipe, 16).ReadString('\n'); err != nil {
		t.Fatalf("%v writes no line: %v", args, err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // a non-zero exit status is an error
	return cmd.ProcessState.ExitCode(), told.String()
}

// longStore returns the folder of a store with one session of the given number of
// prompts.
func longStore(t *testing.T, prompts int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
	session := l.Mint().Session()
	drafts := []events.Draft{l.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})}
	for n := range prompts {
		drafts = append(drafts, l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: fmt.Sprint("prompt ", n)}, domain.EventID{}))
	}
	if _, err := l.Append(t.Context(), events.SessionStream(session), 0, drafts...); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// steppedSession is a trajectory with two bash calls. The first opens the named pipe
// "begun" for writing and then blocks until "go" is written; the second sleeps.
const steppedSession = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},
 {"source":"agent","message":"one","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo > begun; cat go"}}]},
 {"source":"agent","message":"two","tool_calls":[{"tool_call_id":"b","function_name":"bash","arguments":{"command":"sleep 1000"}}]},
 {"source":"agent","message":"three"}]}`

// A run whose reader closes standard error is interrupted at its next progress line. It
// leaves a complete record: the interruption, the end of the process, and a settlement
// for each call.
func TestARunWhoseReaderLeavesIsRecordedAsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trajectory, store := filepath.Join(dir, "t.json"), filepath.Join(dir, "store")
	if err := os.WriteFile(trajectory, []byte(steppedSession), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"begun", "go"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", dir)
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(pipe).ReadString('\n'); err != nil {
		t.Fatal("the run tells nothing: ", err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil { // blocks until the call writes to the named pipe
		t.Fatal(err)
	}
	if err := errors.Join(pipe.Close(), os.WriteFile(filepath.Join(dir, "go"), []byte("on\n"), 0)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // a non-zero exit status is an error
	if got := cmd.ProcessState.ExitCode(); got != fault.ExitUnread {
		t.Errorf("run: exit %d, want %d", got, fault.ExitUnread)
	}
	kinds := string(ledger(t, store, "event", "ls", "-o", "jsonl").out)
	for _, kind := range []string{"SessionInterrupted", "LayerClosed", "ProcessStopped"} {
		if !strings.Contains(kinds, `"kind":"`+kind+`"`) {
			t.Errorf("no %s is on record:\n%s", kind, kinds)
		}
	}
	if open := ledger(t, store, "call", "ls", "--open", "-o", "jsonl"); len(open.out) > 0 {
		t.Errorf("calls are open: %s", open.out)
	}
	if verified := ledger(t, store, "verify"); verified.exit != 0 {
		t.Errorf("verify = %d %s", verified.exit, verified.out)
	}
}

// A run whose standard output is closed completes its session, since it writes results
// only at the end. It then exits with status ExitUnread.
func TestARunWhoseResultsAreNotReadIsRecordedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trajectory, store := filepath.Join(dir, "t.json"), filepath.Join(dir, "store")
	session := `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},
 {"source":"agent","message":"one","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo one"}}]},
 {"source":"agent","message":"two"}]}`
	if err := os.WriteFile(trajectory, []byte(session), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", dir)
	cmd.Stdout, cmd.Stderr = unreadPipe(t), io.Discard
	_ = cmd.Run() // a non-zero exit status is an error
	if got := cmd.ProcessState.ExitCode(); got != fault.ExitUnread {
		t.Errorf("run: exit %d, want %d", got, fault.ExitUnread)
	}
	kinds := string(ledger(t, store, "event", "ls", "-o", "jsonl").out)
	if !strings.Contains(kinds, `"text":"two"`) || !strings.Contains(kinds, `"kind":"ProcessStopped"`) || strings.Contains(kinds, "SessionInterrupted") {
		t.Errorf("the session is not on record to its end:\n%s", kinds)
	}
}

// zeros is an entropy source of zero bytes. IDs of one mint stay distinct, since a mint
// counts on within a millisecond.
type zeros struct{}

// Read reports p as filled without writing to it.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }
