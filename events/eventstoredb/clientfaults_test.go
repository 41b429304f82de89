package eventstoredb_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// The faults of the official client v4.2.0, each shown on the bare client and absent
// through the store. The comment of each test has the number of its fault. A fault
// that blocks or panics is shown in a process of its own.

// bareVariable names, in a process of its own, the fault to show.
const bareVariable = "LEDGER_TEST_BARE"

// bareScenarios are the scenarios of the official client that run in a process of
// their own. Each writes its result as the last line, and waits for a line before it
// continues a request to the test.
var bareScenarios = map[string]func(address string) string{
	"hang":      bareFirstCallsHang,
	"panic":     bareCloseDuringCallsPanics,
	"leak":      bareRestartsLeak,
	"abandoned": bareAbandonedReadsLeak,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(bareVariable); name != "" {
		fmt.Println(bareScenarios[name](os.Getenv(bareVariable + "_ADDRESS")))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runBare runs a scenario in a process of its own and returns its last line. It calls
// restart for each line "restart" and answers it.
func runBare(t *testing.T, name, address string, restart func()) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), bareVariable+"="+name, bareVariable+"_ADDRESS="+address, "GORACE=exitcode=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); last == "restart" {
			restart()
			_, _ = io.WriteString(in, "done\n")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Logf("the process: %v\n%s", err, complaints.String())
	}
	return last
}

// bareClient is the official client without a logger.
func bareClient(address string, attempts int) *esdb.Client {
	config, err := esdb.ParseConnectionString("esdb://" + address + "?tls=false")
	if err != nil {
		panic(err)
	}
	config.Logger = nil
	config.MaxDiscoverAttempts = attempts
	client, err := esdb.NewClient(config)
	if err != nil {
		panic(err)
	}
	return client
}

func bareAppend(ctx context.Context, c *esdb.Client, stream string, events ...esdb.EventData) error {
	_, err := c.AppendToStream(ctx, stream, esdb.AppendToStreamOptions{}, events...)
	return err
}

func bareEvent(n int) esdb.EventData {
	return esdb.EventData{EventType: "Kind", ContentType: esdb.ContentTypeJson, Data: bytes.Repeat([]byte("1"), n)}
}

// unusedAddress returns a loopback address without a listener.
func unusedAddress(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	return at.Addr().String()
}

// Fault 1: the client ignores the end of a context while it searches for a node.
func TestFaultContextIsNotObeyedDuringDiscovery(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.stop()
	at := d.listen() // a listener without a server
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_ = bareAppend(ctx, bareClient(d.address, 1), "bare-1", bareEvent(1))
	}()
	errStop := errors.New("stopped")
	dying, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Append(dying, "mine-1", 0, record(newMint(), "Kind", 1)) }()
	if _, err := at.Accept(); err != nil { // a client searches
		t.Fatal(err)
	}
	stop(errStop)
	if err := <-ended; !errors.Is(err, errStop) {
		t.Errorf("Append = %v, want the cause", err)
	}
	select {
	case <-shown:
		t.Error("the bare client obeyed a context that had ended: the fault is gone")
	default:
	}
	if err := at.Close(); err != nil {
		t.Error(err)
	}
	<-shown
}

// Fault 2: a client whose first search for a node failed never works again.
func TestFaultFailedDiscoveryKillsTheClient(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.config.RetryTimeout = time.Millisecond
	s := d.open()
	d.stop()
	c := bareClient(d.address, 1)
	if err := bareAppend(t.Context(), c, "bare-1", bareEvent(1)); err == nil {
		t.Fatal("the bare client appends to nobody")
	}
	r := record(newMint(), "Kind", 1)
	var err error
	for err = nil; !errors.Is(err, eventstoredb.ErrUnreachable); { // until the old connections have broken
		if err = s.Append(t.Context(), "mine-1", 0, r); err == nil {
			t.Fatal("the store appends to nobody")
		}
	}
	d.start()
	err = bareAppend(t.Context(), c, "bare-1", bareEvent(1))
	if of, ok := errors.AsType[*esdb.Error](err); !ok || of.Code() != esdb.ErrorCodeConnectionClosed {
		t.Errorf("the bare client = %v, want it dead: the fault is gone", err)
	}
	if err := s.Append(t.Context(), "mine-1", 0, r); err != nil && !errors.Is(err, eventstoredb.ErrUnreachable) {
		t.Errorf("Append = %v", err)
	}
	d.config.RetryTimeout = 0
	for err = s.Append(t.Context(), "mine-1", 0, r); errors.Is(err, eventstoredb.ErrUnreachable); {
		err = s.Append(t.Context(), "mine-1", 0, r)
	}
	if err != nil {
		t.Errorf("Append when the server is back = %v", err)
	}
	holds(t, d.open(), "mine-1", r)
}

// Fault 3: of several first calls without a server, all but one block forever.
func TestFaultFirstCallsHangTogether(t *testing.T) {
	t.Parallel()
	if got := runBare(t, "hang", unusedAddress(t), nil); got != "hang" {
		t.Errorf("the bare client: %q, want hang: the fault is gone", got)
	}
	d := newDatabase(t)
	s := d.open()
	d.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := s.Append(ctx, "mine-1", 0, record(newMint(), "Kind", 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Append = %v, want the cause of its context", err)
			}
		})
	}
	calls.Wait() // or the test hangs
}

func bareFirstCallsHang(address string) string {
	c := bareClient(address, 1)
	ended := make(chan error, 8)
	for range 8 {
		go func() { ended <- bareAppend(context.Background(), c, "bare-1", bareEvent(1)) }()
	}
	<-ended
	for n := 7; n > 0; {
		stacks := stacks()
		// No goroutine is left that would receive the requests of these calls.
		if hung := strings.Count(stacks, "getConnectionHandle("); hung > 0 && hung == n && !strings.Contains(stacks, "connectionStateMachine(") {
			return "hang"
		}
		select {
		case <-ended:
			n--
		case <-time.After(pollEvery):
		}
	}
	return "none"
}

// pollEvery is how often a test looks at the stacks of all goroutines, which is
// slow.
const pollEvery = 5 * time.Millisecond

func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// Fault 4: closing a client during failing calls panics.
func TestFaultCloseDuringCallsPanics(t *testing.T) {
	t.Parallel()
	if got := runBare(t, "panic", unusedAddress(t), nil); got != "send on closed channel" {
		t.Errorf("the bare client: %q, want a panic: the fault is gone", got)
	}
	d := newDatabase(t)
	for range repeats(5, 30) {
		s, err := eventstoredb.Open(t.Context(), d.url(), eventstoredb.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		began := make(chan struct{}, 8)
		for range 8 {
			calls.Go(func() {
				for at, mint := events.Revision(0), newMint(); ; at++ {
					err := s.Append(t.Context(), events.Stream("mine-"+mint.Event().String()), 0, record(mint, "Kind", 1))
					if err != nil && !errors.Is(err, events.ErrClosed) {
						t.Errorf("Append = %v, want nil or ErrClosed", err)
					}
					if err != nil {
						return
					}
					select {
					case began <- struct{}{}:
					default:
					}
				}
			})
		}
		<-began
		d.restart()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}

func bareCloseDuringCallsPanics(address string) string {
	panicked := make(chan string, 1000)
	for range 2000 {
		c := bareClient(address, 10)
		var calls sync.WaitGroup
		for range 8 {
			calls.Add(1)
			go func() {
				defer calls.Done()
				defer func() {
					if p := recover(); p != nil {
						panicked <- fmt.Sprint(p)
					}
				}()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				_ = bareAppend(ctx, c, "bare-1", bareEvent(1))
			}()
		}
		runtime.Gosched()
		_ = c.Close()
		select {
		case p := <-panicked:
			return p
		case <-time.After(time.Millisecond):
		}
	}
	return "none"
}

// Fault 5: each restart of the server leaks a connection.
func TestFaultRestartsLeakConnections(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	up := true
	got := runBare(t, "leak", d.address, func() {
		if up = !up; up {
			d.start()
		} else {
			d.stop()
		}
	})
	left := 0
	if _, err := fmt.Sscanf(got, "%d connections are left", &left); err != nil || left < 5 {
		t.Errorf("the bare client: %q, want several: the fault is gone", got)
	}
	// Of the store, TestSoak counts all goroutines and descriptors.
}

func bareRestartsLeak(address string) string {
	in := bufio.NewReader(os.Stdin)
	c := bareClient(address, 1000)
	ask := func() {
		fmt.Println("restart")
		_, _ = in.ReadString('\n')
	}
	for range 6 {
		if err := bareAppend(context.Background(), c, "session-1", bareEvent(1)); err != nil && strings.Contains(err.Error(), "Unavailable") {
			return err.Error()
		}
		ask() // to stop
		for { // until the client has noticed, and will search for a node at its next call
			if err := bareAppend(context.Background(), c, "session-1", bareEvent(1)); err != nil && strings.Contains(err.Error(), "Unavailable") {
				break
			}
		}
		ask() // to start
	}
	_ = c.Close()
	for strings.Contains(stacks(), "connectionStateMachine(") { // it closes the one that it knows
		time.Sleep(pollEvery)
	}
	left := strings.Count(stacks(), "created by google.golang.org/grpc/internal/grpcsync.NewCallbackSerializer")
	return fmt.Sprintf("%d connections are left", left)
}

// Fault 6: the client does not send the requirement of the leader.
func TestFaultLeaderIsNotRequired(t *testing.T) {
	t.Parallel()
	m, s := openBehindProxy(t, "")
	c := bareClient(m.address, 1)
	defer c.Close()
	required := func(method string) (with, without int) {
		for _, h := range m.calls(method) {
			if len(h.header.Get("requires-leader")) > 0 {
				with++
			} else {
				without++
			}
		}
		return with, without
	}
	m.inject(nil)
	if r, err := c.ReadStream(t.Context(), "told-1", esdb.ReadStreamOptions{RequiresLeader: true}, 1); err == nil {
		_, _ = r.Recv()
		r.Close()
	}
	if with, without := required(readMethod); with != 0 || without != 1 {
		t.Errorf("the bare client requires the leader in %d of %d reads: the fault is gone", with, with+without)
	}
	m.inject(nil)
	if err := s.Append(t.Context(), "told-1", 0, record(newMint(), "Kind", 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for what, loop := range loops(ctx, s) {
		for _, err := range loop {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			break
		}
	}
	for _, method := range []string{appendMethod, readMethod} {
		if with, without := required(method); with == 0 || without != 0 {
			t.Errorf("the store requires the leader in %d of %d calls of %s, want all", with, with+without, method)
		}
	}
}

// Fault 7: the client loses the status of an append that is too large.
func TestFaultStatusOfALargeAppendIsLost(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.served.MaxAppend = 1000
	d.restart()
	c := bareClient(d.address, 1)
	defer c.Close()
	many := make([]esdb.EventData, 5000)
	for i := range many {
		many[i] = bareEvent(100)
	}
	var err error
	for range 20 {
		if err = bareAppend(t.Context(), c, "session-1", many...); errors.Is(err, io.EOF) {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the bare client = %v, want EOF: the fault is gone", err)
	}
	// TestAppendThatIsTooLargeIsNotSent, TestAppendOverTheLimitOfTheServerIsRefused
}

// A read of the client that is not closed leaks its stream; a loop of the store whose
// body left does not.
func TestFaultAbandonedReadsLeak(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	mint := newMint()
	records := make([]events.Record, 500)
	for i := range records {
		records[i] = record(mint, "Kind", i)
	}
	if err := d.open().Append(t.Context(), "session-1", 0, records...); err != nil {
		t.Fatal(err)
	}
	if got := runBare(t, "abandoned", d.address, nil); got != "10 reads are left" {
		t.Errorf("the bare client: %q, want all 10: the fault is gone", got)
	}
}

func bareAbandonedReadsLeak(address string) string {
	c := bareClient(address, 1)
	before := strings.Count(stacks(), "created by google.golang.org/grpc.newClientStreamWithParams")
	for range 10 {
		r, err := c.ReadStream(context.Background(), "session-1", esdb.ReadStreamOptions{}, 500)
		if err != nil {
			return err.Error()
		}
		if _, err := r.Recv(); err != nil {
			return err.Error()
		}
	}
	return fmt.Sprintf("%d reads are left", strings.Count(stacks(), "created by google.golang.org/grpc.newClientStreamWithParams")-before)
}

// The client panics at an unknown response. TestPanicOfTheClientIsAnError checks that
// the store returns an error.
func TestFaultClientPanicsAtWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	at := &stubServer{version: "24.10.5", onRead: func(_ *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		return to.Send(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: 3}})
	}}
	address, _, _ := strings.Cut(strings.TrimPrefix(at.serve(t), "esdb://"), "?")
	c := bareClient(address, 1)
	defer c.Close()
	defer func() {
		if recover() == nil {
			t.Error("the bare client does not panic: the fault is gone")
		}
	}()
	r, err := c.ReadStream(t.Context(), "session-1", esdb.ReadStreamOptions{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = r.Recv()
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The client logs a lost connection before it searches for another node. The
// connector retires the client at that message.
func TestClientLogsAnErrorBeforeItLooksForANode(t *testing.T) {
	t.Parallel()
	m := newFaultProxy(t, newDatabase(t).address)
	config, err := esdb.ParseConnectionString(m.url())
	if err != nil {
		t.Fatal(err)
	}
	const begins = "starting a new discovery process"
	var mu sync.Mutex
	var logged []string
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	config.Logger = func(_ esdb.LogLevel, format string, _ ...any) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, format)
		if strings.Contains(format, begins) {
			begin()
		}
	}
	c, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m.inject(firstCalls(appendMethod, 1<<30, fault{refuse: unavailable()}))
	// An append whose sending meets the end of the call does not tell the client
	// that its connection is gone, so there are several.
	for tries := 0; tries < 100 && !closed(begun); tries++ {
		_ = bareAppend(t.Context(), c, "session-1", bareEvent(1))
		_, _ = c.GetServerVersion() // answered behind the order to begin, if there was one
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(logged, "\n")
	before, after, ok := strings.Cut(all, eventstoredb.LogCallFailed)
	if !ok || strings.Contains(before, begins) || !strings.Contains(after, begins) {
		t.Errorf("the client logs\n%s\nwant %q before a new discovery", all, eventstoredb.LogCallFailed)
	}
}
