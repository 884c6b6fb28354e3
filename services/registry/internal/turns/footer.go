package turns

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/markup"
	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// maxModelName is the most characters of the name of a model in a footer.
const maxModelName = 64

// footerOf is how much the reply to a message says of the usage of its turn; empty: nothing. What people set for the
// conversation counts over the settings of the agent. Programs that post to an account get the text of the agent alone,
// and so does everything that outbound sends elsewhere.
func footerOf(set *agentdir.Agent, se *store.Session, t route.Tuple) string {
	mode := set.Config.Reply.UsageFooter
	if se != nil && se.UsageFooter != "" {
		mode = se.UsageFooter
	}
	if mode == config.FooterOff || t.Internal || set.Config.Outbound != nil ||
		!slices.ContainsFunc(set.Accounts, func(a layer.Account) bool { return a.Name == t.ChannelID && a.Connects() }) {
		return ""
	}
	return mode
}

// footer is the line about the usage of a turn that its reply ends with in the chat, in Markdown; empty: it has none. It
// is stored with the reply, so that each try to send it has the same text. A turn whose usage cannot be read now, or that
// used nothing that is known, has none.
func (s *Service) footer(ctx context.Context, a *state.Agent, set *agentdir.Agent, r store.Ref, c state.Claim, fin store.Finish) string {
	if c.Restored { // the settings are those of now
		c.Footer = footerOf(set, c.Session, c.Tuple)
	}
	if c.Footer == "" || c.Command {
		return ""
	}
	used, model, ok := a.Used(r.Thread, fin.Key)
	if !ok { // what the journal has, and what is written with the reply
		sums, err := s.Store.SumUsage(ctx, r, store.SumUsage{ByRun: true, Turns: []string{fin.Key}})
		if err != nil {
			return ""
		}
		for _, sum := range sums {
			used.Add(sum.Usage)
			model = sum.Model
		}
		for _, st := range fin.Steps {
			used.Add(st.Usage)
			if st.Kind == store.StepModel {
				model = st.Name
			}
		}
	}
	if used == (store.Usage{}) {
		return ""
	}
	line := fmt.Sprintf("Usage: %d tokens in", used.Input)
	if c.Footer == config.FooterFull && used.CachedInput > 0 {
		line += fmt.Sprintf(" (%d from the cache)", used.CachedInput)
	}
	line += fmt.Sprintf(", %d out", used.Output)
	if c.Footer != config.FooterFull {
		return line
	}
	cents, known := set.Config.Price.Cost(price.Tokens{Input: used.Input, Output: used.Output, Cached: used.CachedInput, CacheWrite: used.CacheWrite})
	if known {
		line += ", " + strconv.FormatFloat(cents, 'f', 2, 64) + " cents"
	}
	if name := []rune(boundary.Name(model)); model != "" {
		line += ", " + markup.Code(string(name[:min(len(name), maxModelName)]))
	}
	return line
}
