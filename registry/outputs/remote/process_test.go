package remote

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/registry/outputs"
)

// large selects 256 MiB for the test of memory.
var large = os.Getenv("LEDGER_LARGE")

// TestMain is a node if the environment variable names its folder.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LEDGER_TEST_NODE"); dir != "" {
		if err := beNode(dir, os.Getenv("LEDGER_TEST_LISTEN")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beNode serves a folder at an address until the process is killed.
func beNode(dir, address string) error {
	store, err := outputs.Open(dir, outputs.Config{Reserve: 1})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, Serve(store, ServerConfig{}))
}

// A nodeProcess is a node in a process of its own.
type nodeProcess struct {
	t       *testing.T
	dir     string
	address string
	cmd     *exec.Cmd
	kills   int
}

func (p *nodeProcess) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), "LEDGER_TEST_NODE="+p.dir, "LEDGER_TEST_LISTEN="+p.address)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Error(err)
		return
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Error(err)
		return
	}
	p.address = line[:len(line)-1]
}

func (p *nodeProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.kills++
}

// A killingReader kills and restarts a node each time that a number of bytes was
// read.
type killingReader struct {
	io.ReadSeeker
	node  *nodeProcess
	every int
	left  int
	times int
}

func (k *killingReader) Read(p []byte) (int, error) {
	n, err := k.ReadSeeker.Read(p)
	if k.left -= n; k.left <= 0 && k.node.kills < k.times {
		k.left = k.every
		k.node.kill()
		k.node.start()
	}
	return n, err
}

// A client continues its transfers with a node that is killed and restarted
// meanwhile.
func TestNodeThatIsKilledIsCarriedOnWith(t *testing.T) {
	t.Parallel()
	node := &nodeProcess{t: t, dir: t.TempDir(), address: "127.0.0.1:0"}
	node.start()
	defer func() { node.kill() }()
	c := clientOf(t, "http://"+node.address, Config{Retry: 20 * time.Second})
	r, content := refs(1)(), random(12*pageSize+5, 1)
	in := &killingReader{bytes.NewReader(content), node, 4 * pageSize, 4 * pageSize, 2}
	got, err := c.Keep(t.Context(), r, mime, in)
	if want := retainedOf(r, content); err != nil || got != want {
		t.Fatalf("Keep = %+v, %v, want %+v", got, err, want)
	}
	if node.kills != 2 {
		t.Fatalf("the node was killed %d times, want 2", node.kills)
	}
	o, err := c.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var back bytes.Buffer
	if _, err := io.Copy(&back, &killingReader{o, node, 3 * pageSize, 3 * pageSize, 5}); err != nil || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("it reads back as %d bytes, %v, want %d", back.Len(), err, len(content))
	}
	if node.kills != 5 {
		t.Fatalf("the node was killed %d times, want 5", node.kills)
	}
}

// A memoryGauge samples the memory in use while it is read or written.
type memoryGauge struct {
	left int64
	next *rand.ChaCha8
	peak uint64
	seen int64
}

func newMemoryGauge(size int64) *memoryGauge {
	return &memoryGauge{left: size, next: rand.NewChaCha8([32]byte{})}
}

func (g *memoryGauge) sample() {
	if g.seen++; g.seen%64 == 1 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.peak = max(g.peak, m.HeapAlloc)
	}
}

func (g *memoryGauge) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF
	}
	g.sample()
	p = p[:min(int64(len(p)), g.left)]
	g.left -= int64(len(p))
	return g.next.Read(p)
}

func (g *memoryGauge) Write(p []byte) (int, error) {
	g.sample()
	return len(p), nil
}
