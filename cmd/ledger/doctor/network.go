package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/runner"
)

// examineNetwork probes the nodes of a connection string, and the further nodes that
// those list as members of their cluster. It checks the network, each node, the cluster
// and the clocks. Every step of the probe has the timeout of the Doctor. It returns an
// error only for an invalid connection string.
func (d *Doctor) examineNetwork(ctx context.Context, e *Report, at stores.Address) error {
	nodes, err := eventstoredb.Probe(ctx, at.Database, eventstoredb.ProbeConfig{StepTimeout: d.Timeout, Now: d.Now})
	if err != nil {
		return err
	}
	// The client sends credentials only over TLS.
	if u := at.Database[strings.Index(at.Database, "://")+len("://"):]; strings.Contains(u, "@") && at.Plain() {
		e.fail("credentials", "remove tls=false, or the user and the password", "the user and the password of the connection string are never sent, because TLS is off")
	}
	for _, n := range nodes {
		e.network(n)
	}
	for _, n := range nodes {
		e.node(n)
	}
	e.cluster(nodes)
	e.clocks(nodes)
	return nil
}

// network checks that the name of a node resolves and that at least one of its IP
// addresses accepts connections. The detail lists each address with the time that the
// connection took, or with the error. The figure is the shortest of these times.
func (e *Report) network(n eventstoredb.Node) {
	var open, shut []string
	var soonest time.Duration
	host, _, _ := net.SplitHostPort(n.Address)
	for _, d := range n.Dials {
		ip, _, _ := net.SplitHostPort(d.Address)
		if d.Err != nil {
			shut = append(shut, fmt.Sprintf("%s fails: %s", ip, d.Err))
			continue
		}
		if soonest == 0 || d.Took < soonest {
			soonest = d.Took
		}
		text := "accepts connections, after " + brief(d.Took)
		if ip != host {
			text = ip + " " + text
		}
		open = append(open, text)
	}
	// A node that the connection string does not name was found through another node.
	who := n.Address
	if !n.Named {
		who += ", which another node names,"
	}
	switch {
	case len(n.Dials) == 0:
		e.fail("network", "check the name, and the server that resolves names", "%s: %s", who, n.Err)
	case len(open) == 0:
		e.fail("network", "start the server, or check the name, the port and the firewalls between", "%s: %s", who, strings.Join(shut, "; "))
	default:
		e.pass("network", "%s %s", who, strings.Join(append(open, shut...), "; "))
		e.addFigures(map[string]int64{"took_us": soonest.Microseconds()})
	}
}

// advices maps errors of a node to advice. The first entry whose sentinel the error
// wraps is used. An error that wraps no sentinel of the table has no advice.
var advices = []struct {
	is   error
	hint string
}{
	{eventstoredb.ErrTLS, "set tls=false in the connection string if the server has no TLS, otherwise remove it"},
	{eventstoredb.ErrCertificate, "set tlsCaFile=FILE to the certificate of its authority, and use a host name of the server's certificate; check the clock if the certificate has expired"},
	{eventstoredb.ErrForeign, "check the port: another program answers there"},
	{eventstoredb.ErrTooOld, "use a newer server"},
	{eventstoredb.ErrPreRelease, "use a released version of the server"},
	{eventstoredb.ErrUnreachable, "read the log of the server, and check the proxies and firewalls between"},
}

// node checks that a node is an EventStoreDB of a usable version, and reports its role in
// the cluster. It adds no finding for a node that accepts no connections, because network
// has already reported that.
func (e *Report) node(n eventstoredb.Node) {
	reached := false
	for _, d := range n.Dials {
		reached = reached || d.Err == nil
	}
	if !reached {
		return
	}
	if n.Err != nil {
		advice := ""
		for _, k := range advices {
			if errors.Is(n.Err, k.is) {
				advice = k.hint
				break
			}
		}
		e.fail("node", advice, "%s: %s", n.Address, n.Err)
		return
	}
	role := ""
	for _, m := range n.Members {
		if strings.EqualFold(m.Address, n.Address) {
			role = ", " + strings.ToLower(m.State)
		}
	}
	e.pass("node", "%s is an EventStoreDB of version %s%s", n.Address, n.Version, role)
}

// cluster checks that the nodes follow one leader and that all members of their cluster
// are alive. It takes the state of the members from the first node that lists members.
// Nodes that name different leaders belong to different clusters. cluster adds no
// finding for a single node, or if no node lists members.
func (e *Report) cluster(nodes []eventstoredb.Node) {
	// Each node lists the members and their roles as it sees them. Nodes of one
	// cluster see the same leader.
	leaders, told := map[string]bool{}, 0
	var first eventstoredb.Node
	for _, n := range nodes {
		if len(n.Members) == 0 {
			continue
		}
		if told++; told == 1 {
			first = n
		}
		for _, m := range n.Members {
			if m.Alive && m.State == "Leader" {
				leaders[strings.ToLower(m.Address)] = true
			}
		}
	}
	if told == 0 || len(nodes) == 1 && len(first.Members) == 1 && len(leaders) == 1 {
		return
	}
	var members []string
	dead := 0
	for _, m := range first.Members {
		text := m.Address + " " + strings.ToLower(m.State)
		if !m.Alive {
			text, dead = m.Address+" dead", dead+1
		}
		members = append(members, text)
	}
	detail := fmt.Sprintf("%s sees %s: %s", first.Address, render.Count(len(members), "node"), strings.Join(members, ", "))
	switch {
	case len(leaders) == 0:
		e.fail("cluster", "start nodes until more than half are up: they elect a leader", "%s; there is no leader", detail)
	case len(leaders) > 1:
		e.fail("cluster", "name nodes of one cluster in the connection string, by the addresses that they advertise", "the nodes that answer follow %d leaders instead of one", len(leaders))
	case dead > 0:
		e.fail("cluster", "start the dead nodes, or remove them from the cluster", "%s", detail)
	default:
		e.pass("cluster", "%s", detail)
	}
}

// clocks compares the clock of each node that reports its time with the clock of this
// machine. If no node reports its time, clocks adds a finding that says this. The
// methods examineReading and examineWriting compare clocks too, by the times of records.
func (e *Report) clocks(nodes []eventstoredb.Node) {
	told, answers := false, false
	for _, n := range nodes {
		answers = answers || n.Err == nil
		if n.Skew != nil {
			told = true
			e.skew("the clock of "+n.Address, *n.Skew)
		}
	}
	if answers && !told {
		e.pass("clocks", "no node sends its time: only the times of records are compared, and --write measures the leader's")
	}
}

// skew adds a finding about one clock. The detail begins with whose, the name of that
// clock. The true skew may differ from the measured one by s.Within: the check fails
// only if even the smallest possible skew exceeds maxSkew.
func (e *Report) skew(whose string, s eventstoredb.Skew) {
	way := "ahead of"
	if s.Ahead < 0 {
		way = "behind"
	}
	detail := fmt.Sprintf("%s is %s %s that of this machine, give or take %s", whose, rough(s.Ahead.Abs()), way, rough(s.Within))
	if s.Ahead.Abs()-s.Within > maxSkew {
		e.fail("clocks", "synchronize the clocks of all machines: leases allow for "+runner.LeaseMargin.String(), "%s", detail)
	} else {
		e.pass("clocks", "%s", detail)
	}
	e.addFigures(map[string]int64{"ahead_us": s.Ahead.Microseconds(), "within_us": s.Within.Microseconds()})
}

// rough formats a duration, rounded to milliseconds, or to microseconds below one
// millisecond.
func rough(d time.Duration) string {
	if d >= time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return brief(d)
}

// brief formats a duration, rounded to microseconds.
func brief(d time.Duration) string { return d.Round(time.Microsecond).String() }
