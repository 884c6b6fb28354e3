package setting

import (
	"fmt"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// prompt is what the model would get, for programs.
type prompt struct {
	AgentID  string `json:"agent_id"`
	ThreadID string `json:"thread_id"`
	Tokens   int64  `json:"tokens"`
	Budget   int64  `json:"budget"`
	Parts    []part `json:"parts"`
}

type part struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Tokens    int64  `json:"tokens"`
	Truncated bool   `json:"truncated"`
	Text      string `json:"text"`
}

func contextCommand(e *command.Env) *cobra.Command {
	var at int64
	show := &cobra.Command{
		Use:   "show ID THREAD",
		Short: "Show the exact prompt that the model would get",
		Long: `Show the exact prompt that the model would get in a conversation: each part with its
estimated tokens. --at shows the prompt at an earlier event of the thread: the messages
are as they were then; files, including memory, are as they are now.`,
		Example: `  agentctl context show alice threads/peers/cli-cli
  agentctl context show alice threads/main --at 12 --json`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.RunnerService().BuildContext(c.Context(), &runner.BuildContextRequest{AgentId: args[0], ThreadId: args[1], AtEvent: at})
			if err != nil {
				return err
			}
			p := prompt{AgentID: args[0], ThreadID: args[1], Tokens: r.GetTokens(), Budget: r.GetBudget(), Parts: []part{}}
			for _, q := range r.GetParts() {
				p.Parts = append(p.Parts, part{q.GetName(), q.GetRole(), q.GetTokens(), q.GetTruncated(), q.GetText()})
			}
			names := []string{}
			for _, q := range p.Parts {
				names = append(names, q.Name)
			}
			return e.Print(p, names, func() error {
				p.print(e)
				if at > 0 {
					e.Note("messages are as of event %d; IDENTITY.md and memory are as they are now, what they held then is not kept", at)
				}
				return nil
			})
		},
	}
	command.NumberFlag(show, &at, "at", 0, math.MaxInt64, "last event to include; 0: the newest")
	return command.Group(e, &cobra.Command{
		Use: "context", Short: "Show the prompt of a conversation", Example: `  agentctl context show alice threads/peers/cli-cli`,
	}, show)
}

func (p prompt) print(e *command.Env) {
	for _, q := range p.Parts {
		cut := ""
		if q.Truncated {
			cut = ", cut to fit"
		}
		title := screen.Line(fmt.Sprintf("--- %s (%s, about %d tokens%s)", q.Name, q.Role, q.Tokens, cut))
		fmt.Fprintf(e.Out, "%s\n%s\n\n", screen.Paint(e, text.Bold, title), strings.TrimRight(screen.Text(e, q.Text), "\n"))
	}
	fmt.Fprintf(e.Out, "about %d tokens of %d\n", p.Tokens, p.Budget)
}
