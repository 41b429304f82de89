package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// loadProfile sets the profile of the next turn. A recovery takes no turn, so it keeps
// the zero Profile.
func (c *runState) loadProfile(ctx context.Context) (err error) {
	if c.config.Profile == nil || c.run.recovers {
		return nil
	}
	if c.profile, err = c.config.Profile(ctx, c.session); err != nil {
		return fmt.Errorf("run session %s: agent %s: %w", c.session.Session, c.session.Agent, err)
	}
	c.profile.System = strings.ToValidUTF8(c.profile.System, "\uFFFD") // its digest is that of the recorded text
	c.profiled = c.session.Agent
	return nil
}

// steps returns the maximum number of replies to one prompt: the smaller of the limits of
// the runner and of the agent. Zero is unlimited.
func (c *runState) steps() int {
	if c.config.Steps > 0 && c.profile.Steps > 0 {
		return min(c.config.Steps, c.profile.Steps)
	}
	return max(c.config.Steps, c.profile.Steps)
}

// registry returns the registry that settles the calls of the session.
func (c *runState) registry() *registry.Registry {
	return cmp.Or(c.profile.Registry, c.config.Registry)
}

// facts returns the facts of the next turn. The model is the model of the agent, else the
// one that the provider names, else the model of the session.
func (c *runState) facts() domain.TurnFacts {
	f := domain.TurnFacts{
		Agent: c.session.Agent, Ancestors: c.session.Ancestors, Client: c.config.Client, Flags: c.config.Flags,
		Tools: c.profile.Tools, Rules: c.profile.Rules, Has: c.config.Has,
	}
	var named string
	if n, ok := c.config.Provider.(ModelNamer); ok {
		f.Provider, named = n.NextModel(c.session, c.profile.Model)
	}
	f.Model = cmp.Or(c.profile.Model, named, c.session.Model)
	return f
}

// textDrafts returns the drafts of texts that the session does not have yet: the system
// prompt, the instruction, the parameters and the schemas of the request, the permission
// rules, and the descriptions made for the turn. It sets the digests of these texts in turn.
func (c *runState) textDrafts(turn *events.TurnMaterialized, request Turn, record RequestRecord, described map[domain.Name]string) []events.Draft {
	var drafts []events.Draft
	digests := map[string]bool{}
	name := func(text string) string {
		if text == "" {
			return ""
		}
		sum := sha256.Sum256([]byte(text))
		digest := hex.EncodeToString(sum[:])
		if !c.session.HasText(digest) && !digests[digest] {
			digests[digest] = true
			drafts = append(drafts, c.config.Ledger.Draft(events.TextRecorded{Digest: digest, Text: text}, c.session.Last))
		}
		return digest
	}
	turn.System, turn.Instruction = name(request.System), name(request.Instruction)
	turn.Parameters, turn.Schemas = name(record.Parameters), name(record.Schemas)
	turn.RulesText = name(c.profile.Rules.Text())
	for _, tool := range slices.Sorted(maps.Keys(described)) {
		turn.Described = append(turn.Described, events.DescribedTool{Name: tool, Text: name(described[tool])})
	}
	return drafts
}
