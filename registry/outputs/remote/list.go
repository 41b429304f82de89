package remote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// All is [outputs.Store.All] at the node: it yields each blob once, ordered by
// settlement and channel.
func (c *Client) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return list(ctx, c, "/v1/outputs", decodeRetained, func(a, b domain.Retained) int {
		return cmp.Or(a.Ref.Settlement().Compare(b.Ref.Settlement()), cmp.Compare(a.Ref.Channel(), b.Ref.Channel()))
	})
}

// Unconfirmed is [outputs.Store.Unconfirmed] at the node: it yields each settlement
// once, in order.
func (c *Client) Unconfirmed(ctx context.Context) iter.Seq2[domain.EventID, error] {
	return list(ctx, c, "/v1/unconfirmed", func(line string) (id domain.EventID, err error) {
		err = id.UnmarshalText([]byte(line))
		return id, err
	}, domain.EventID.Compare)
}

// errLoopEnded ends a list whose loop body left the loop.
var errLoopEnded = errors.New("the loop over a remote output was left")

// list yields the values of a list, which the node sends in the order of compare, one
// on each line. If the connection breaks, list requests the whole list again and skips
// the values up to the last one yielded, so it yields each value once. The retry time
// begins anew after every attempt that yielded a new value. An error is yielded once,
// last.
func list[T any](ctx context.Context, c *Client, path string, parse func(string) (T, error), compare func(a, b T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *T
		read := func(_ http.Header, body io.Reader) error {
			lines := bufio.NewReader(body)
			for {
				line, err := lines.ReadString('\n')
				if err == io.EOF {
					err = fmt.Errorf("%w at %s: %w", ErrUnreachable, c.address, io.ErrUnexpectedEOF)
				}
				line = strings.TrimSuffix(line, "\n")
				if err != nil || line == listEnd {
					return err
				}
				if text, ok := strings.CutPrefix(line, listError); ok {
					return fmt.Errorf("node %s: %w", c.address, decodeError(text))
				}
				v, err := parse(line)
				if err != nil {
					return fmt.Errorf("read a line of node %s: %w: %w", c.address, ErrNotANode, err)
				}
				if last != nil && compare(v, *last) <= 0 {
					continue
				}
				last = &v
				if !yield(v, nil) {
					return errLoopEnded
				}
			}
		}
		err, resumed := error(nil), last
		for {
			err = c.do(ctx, request{method: http.MethodGet, path: path}, read)
			if err == nil || !retryable(err) || last == resumed {
				break
			}
			resumed = last // it made progress, so the retry time begins anew
		}
		if err != nil && err != errLoopEnded {
			var zero T
			yield(zero, fmt.Errorf("list outputs: %w", err))
		}
	}
}
