package remote

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A Location describes where a blob may be: the process that settled its call, and the
// nodes that may have the blob.
type Location struct {
	// Retained is the metadata in the settlement event.
	Retained domain.Retained
	// Process is the start event of the process that settled the call. It has only the
	// ID if the log does not contain that event.
	Process events.ProcessStarted
	// Addresses are the addresses of nodes that may have the blob, the most likely
	// first: the address of the process that settled the call, and then those of later
	// processes of its host, the latest first, since one of them may have the store
	// open now. Processes with a stop event in the log come after all others.
	Addresses []string
}

// String names the process by host and PID, or by its ID if the log does not contain
// the start of the process.
func (o Location) String() string {
	if o.Process.Host == "" {
		return o.Process.Process.String()
	}
	return fmt.Sprintf("%s pid %d", o.Process.Host, o.Process.PID)
}

// explain returns err, the error of a request to address. If the process ran on
// another machine and address is a loopback address, explain adds that only the
// process's own machine can reach it.
func (o Location) explain(address string, err error) error {
	u, bad := url.Parse(address)
	if here, unknown := os.Hostname(); bad != nil || unknown != nil || here == o.Process.Host || !isLoopback(u.Hostname()) {
		return err
	}
	return fmt.Errorf("%w (an address that only %s itself reaches: others need ledger serve there with --listen-outputs)", err, o.Process.Host)
}

// maxAddresses is the greatest number of nodes in a Location.
const maxAddresses = 8

// Locate returns the location of a blob according to the log. It returns an
// outputs.ErrNotFound if the log has no settlement that references the blob. It reads
// the headers of settlements, backward from the end of the log to the settlement of
// the blob, then one session stream, and the start and stop events of all processes.
func Locate(ctx context.Context, ledger *events.Ledger, ref domain.Ref) (Location, error) {
	o, err := locate(ctx, ledger, ref)
	if err != nil {
		return Location{}, fmt.Errorf("locate %v: %w", ref, err)
	}
	return o, nil
}

// locate is Locate without the operation's name in its errors.
func locate(ctx context.Context, ledger *events.Ledger, ref domain.Ref) (o Location, err error) {
	session, err := streamOf(ctx, ledger, ref.Settlement())
	if err != nil {
		return o, err
	}
	var process domain.ProcessID
	if o.Retained, process, err = settledBy(ctx, ledger, session, ref); err != nil {
		return o, err
	}
	o.Process, o.Addresses, err = addressesOf(ctx, ledger, process)
	return o, err
}

// addressesOf returns the start event of a process and the addresses of the nodes that
// may have its store. A process that started later on the same host may have opened
// the same folder.
func addressesOf(ctx context.Context, ledger *events.Ledger, process domain.ProcessID) (events.ProcessStarted, []string, error) {
	own := events.ProcessStarted{Process: process}
	var later []events.ProcessStarted
	ended := map[domain.ProcessID]bool{}
	lifecycle := events.Filter{Kinds: []string{events.ProcessStarted{}.Kind(), events.ProcessStopped{}.Kind()}}
	for v, err := range ledger.Scan(ctx, events.Query{Filter: lifecycle}) {
		if err != nil {
			return own, nil, err
		}
		switch e := v.Event.(type) {
		case events.ProcessStarted:
			if e.Process == process {
				own = e
			} else if e.Host != "" && e.Host == own.Host {
				later = append(later, e)
			}
		case events.ProcessStopped:
			ended[e.Process] = true
		}
	}
	slices.Reverse(later)
	return own, rankAddresses(append([]events.ProcessStarted{own}, later...), ended), nil
}

// rankAddresses returns the distinct addresses of the processes in all, at most
// maxAddresses. Processes that are not in ended come first. Apart from that, the
// addresses have the order of all.
func rankAddresses(all []events.ProcessStarted, ended map[domain.ProcessID]bool) (addresses []string) {
	for _, gone := range []bool{false, true} {
		for _, p := range all {
			if ended[p.Process] == gone && p.Address != "" && !slices.Contains(addresses, p.Address) && len(addresses) < maxAddresses {
				addresses = append(addresses, p.Address)
			}
		}
	}
	return addresses
}

// streamOf returns the stream of a settlement, or outputs.ErrNotFound. It searches
// backward from the end of the log if the store can read backward, since a blob is
// usually read soon after its call.
func streamOf(ctx context.Context, ledger *events.Ledger, settlement domain.EventID) (events.Stream, error) {
	_, backward, err := ledger.Head(ctx)
	if err != nil {
		return "", err
	}
	settled := events.Query{Filter: events.Filter{Kinds: []string{events.CallSettled{}.Kind()}}, Backward: backward}
	for h, err := range ledger.Headers(ctx, settled) {
		if err != nil {
			return "", err
		}
		if h.ID == settlement {
			return h.Stream, nil
		}
	}
	return "", fmt.Errorf("%w: its settlement is not on record", outputs.ErrNotFound)
}

// settledBy returns the metadata of a blob from its settlement event, and the process
// that settled the call. That is the process that began the call. If the call never
// began, it is the process that opened the layer of the tool. settledBy returns
// outputs.ErrNotFound if the settlement does not reference the blob.
func settledBy(ctx context.Context, ledger *events.Ledger, session events.Stream, ref domain.Ref) (kept domain.Retained, process domain.ProcessID, err error) {
	type key struct {
		message domain.MessageID
		call    domain.CallID
	}
	began := map[key]domain.ProcessID{}
	for v, err := range ledger.Read(ctx, session, 0) {
		if err != nil {
			return kept, process, err
		}
		switch e := v.Event.(type) {
		case events.CallStarted:
			began[key{e.Message, e.Call}] = e.Process
		case events.CallSettled:
			if v.ID != ref.Settlement() {
				continue
			}
			i := slices.IndexFunc(e.Retained, func(r domain.Retained) bool { return r.Ref == ref })
			if i < 0 {
				return kept, process, fmt.Errorf("%w: its settlement names no such output", outputs.ErrNotFound)
			}
			if process = began[key{e.Message, e.Call}]; process.IsZero() {
				process, err = ownerOf(ctx, ledger, e)
			}
			return e.Retained[i], process, err
		}
	}
	return kept, process, fmt.Errorf("%w: its settlement cannot be read", outputs.ErrNotFound)
}

// ownerOf returns the process that opened the layer of a call's tool, and the zero ID
// if the log does not contain that process.
func ownerOf(ctx context.Context, ledger *events.Ledger, e events.CallSettled) (domain.ProcessID, error) {
	layer := e.Effective.Layer
	if layer.IsZero() {
		layer = e.Offered.Layer
	}
	if layer.IsZero() {
		return domain.ProcessID{}, nil
	}
	for v, err := range ledger.Read(ctx, events.LayerStream(layer), 0) {
		if err != nil {
			return domain.ProcessID{}, err
		}
		if opened, ok := v.Event.(events.LayerOpened); ok {
			return opened.Process, nil
		}
	}
	return domain.ProcessID{}, nil
}
