package domain_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Each error type matches its own sentinel and no other.
func TestErrorsAnswerToTheirSentinelAlone(t *testing.T) {
	t.Parallel()
	sentinels := []error{
		domain.ErrBadID, domain.ErrBadName, domain.ErrBadRef, domain.ErrBadTool, domain.ErrBadSchema, domain.ErrInvalidInput,
		domain.ErrInvalidOutput, domain.ErrInterrupted, domain.ErrDenied, domain.ErrDeclined, domain.ErrBadWord,
	}
	for err, want := range map[error]error{
		&domain.Denied{Action: "bash", Resource: "ls"}: domain.ErrDenied,
		&domain.Declined{}:         domain.ErrDeclined,
		domain.ByUser:              domain.ErrInterrupted,
		domain.Fail("no"):          nil,
		&domain.Defect{Value: "x"}: nil,
	} {
		for _, s := range sentinels {
			if got := errors.Is(fmt.Errorf("wrapped: %w", err), s); got != (s == want) {
				t.Errorf("errors.Is(%#v, %v) = %t", err, s, got)
			}
		}
	}
}

// Error of a Failure, Denied, Declined or Interruption returns its documented
// text.
func TestErrorsReadAsTheModelReadsThem(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no city X at 100%":                          domain.Fail("no city %s at %d%%", "X", 100),
		"Permission denied: bash rm -rf /":           &domain.Denied{Action: "bash", Resource: "rm -rf /", Rule: domain.Rule{Effect: domain.Deny}},
		"Permission denied: bash ls (nobody to ask)": &domain.Denied{Action: "bash", Resource: "ls", Reason: "nobody to ask"},
		"use a branch":                               &domain.Declined{Feedback: "use a branch"},
		"declined":                                   &domain.Declined{},
		"interrupted: superseded":                    domain.Superseded,
	} {
		if got := err.Error(); got != want {
			t.Errorf("%#v reads %q, want %q", err, got, want)
		}
	}
}

// InterruptionOf returns the interruption in a cause, ByDeadline for a deadline,
// and ByShutdown otherwise.
func TestInterruptionIsThatOfTheCause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		cause error
		want  domain.Interruption
	}{
		{domain.Superseded, domain.Superseded},
		{fmt.Errorf("ctrl-c: %w", domain.ByUser), domain.ByUser},
		{context.DeadlineExceeded, domain.ByDeadline},
		{fmt.Errorf("slow: %w", context.DeadlineExceeded), domain.ByDeadline},
		{context.Canceled, domain.ByShutdown},
		{errors.New("anything"), domain.ByShutdown},
		{nil, domain.ByShutdown},
	} {
		if got := domain.InterruptionOf(row.cause); got != row.want {
			t.Errorf("InterruptionOf(%v) = %s, want %s", row.cause, got, row.want)
		}
	}
}
