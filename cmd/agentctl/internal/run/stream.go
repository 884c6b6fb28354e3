package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/pause"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// follow reads what happens in a run from a seq on, up to its end. When the
// runner was away it goes on after the last item.
func follow(ctx context.Context, e *command.Env, agent, id string, after uint64, each func(*runner.StreamRunResponse) error) error {
	var away time.Time
	for {
		ended, err := once(ctx, e, agent, id, &after, func(r *runner.StreamRunResponse) error {
			away = time.Time{}
			return each(r)
		})
		switch {
		case ended:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !command.Unavailable(err):
			return err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > command.Patience:
			return err
		}
		if err := pause.For(ctx, again); err != nil {
			return err
		}
	}
}

// once reads one stream; ended tells that the run is over, or its reader.
func once(ctx context.Context, e *command.Env, agent, id string, after *uint64, each func(*runner.StreamRunResponse) error) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := e.RunnerService().StreamRun(ctx, &runner.StreamRunRequest{AgentId: agent, RunId: id, AfterSeq: *after})
	if err != nil {
		return false, err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return false, err
		}
		*after = r.GetSeq()
		if err := each(r); err != nil {
			return true, err
		}
		if last(r) {
			return true, nil
		}
	}
}

// last reports whether an item is the end of its run.
func last(r *runner.StreamRunResponse) bool {
	return r.GetStream() == runner.RunStream_RUN_STREAM_LIFECYCLE && (r.GetPhase() == "end" || r.GetPhase() == "error")
}

// happening is one item for programs.
type happening struct {
	Seq    uint64 `json:"seq"`
	Stream string `json:"stream"`
	Phase  string `json:"phase"`
	Text   string `json:"text,omitempty"`
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"call_id,omitempty"`
	// These are there for tools.
	Summary  string `json:"summary,omitempty"`
	Class    string `json:"class,omitempty"`
	External bool   `json:"external,omitempty"`
	Parallel int32  `json:"parallel,omitempty"`
	// PromptID is the id of a question or an approval.
	PromptID string `json:"prompt_id,omitempty"`
	// WillRetry is there at the end of a compaction.
	WillRetry *bool `json:"will_retry,omitempty"`
	// These are there at the end of the run.
	ErrorCode    string     `json:"error_code,omitempty"`
	InputTokens  *int64     `json:"input_tokens,omitempty"`
	OutputTokens *int64     `json:"output_tokens,omitempty"`
	Payloads     *[]payload `json:"payloads,omitempty"`
	MergedInto   string     `json:"merged_into,omitempty"`
}

func streamCommand(e *command.Env) *cobra.Command {
	var after uint64
	c := &cobra.Command{
		Use:   "stream ID RUN",
		Short: "Print the output of a run while it happens",
		Long: `Print the reply of a run while it is written. Thoughts, tools, digests of older messages
and what the run waits for go to standard error, and so does the line "restart": another
runner has taken over the run, and the output since the last tool is repeated. With --json each item is one object per line, with its
seq; --after continues after a seq. The command ends with the run, with exit code 1 when
the run failed.`,
		Example: `  agentctl run stream alice RUN
  agentctl run stream alice RUN --json --after 4294967300`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := known(c.Context(), e, args[0], args[1]); err != nil {
				return err
			}
			var end *runner.StreamRunResponse
			e.Err = &lines{w: e.Err}
			s := speaker{env: e, narrator: narrator{out: e.Err}}
			watching, stop := context.WithCancel(c.Context())
			var watched sync.WaitGroup
			watched.Go(func() { (&watcher{env: e, agent: args[0], id: args[1]}).watch(watching) })
			err := follow(c.Context(), e, args[0], args[1], after, func(r *runner.StreamRunResponse) error {
				end = r
				if !e.Data() {
					return s.tell(r)
				}
				b, err := line(r)
				if err == nil {
					_, err = e.Item(b, fmt.Sprint(r.GetSeq()))
				}
				return err
			})
			stop()
			watched.Wait()
			s.endLine()
			if err != nil {
				return err
			}
			if end.GetPhase() == "error" {
				if e.Data() {
					return &command.ReportedError{}
				}
				return failed(args[0], args[1], end.GetText())
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&after, "after", 0, "only items after this seq")
	return c
}

func line(r *runner.StreamRunResponse) (json.RawMessage, error) {
	h := happening{
		Seq: r.GetSeq(), Stream: command.Word(r.GetStream(), "RUN_STREAM_", "unspecified"), Phase: r.GetPhase(), Text: r.GetText(), Tool: r.GetTool(), CallID: r.GetCallId(),
		ErrorCode: command.Word(r.GetErrorCode(), "RUN_ERROR_", ""), MergedInto: r.GetMergedInto(),
		Summary: r.GetSummary(), Class: r.GetClass(), External: r.GetExternal(), Parallel: r.GetParallel(), PromptID: r.GetPromptId(),
	}
	switch {
	case r.GetStream() == runner.RunStream_RUN_STREAM_COMPACTION && r.GetPhase() == "end":
		h.WillRetry = &r.WillRetry
	case last(r):
		all := payloads(r.GetPayloads())
		h.InputTokens, h.OutputTokens, h.Payloads = &r.InputTokens, &r.OutputTokens, &all
	}
	return json.Marshal(h)
}

// speaker writes the reply to standard output, and lets the narrator tell the rest.
type speaker struct {
	env *command.Env
	narrator
	open bool // the last line of the reply is not ended
}

func (s *speaker) tell(r *runner.StreamRunResponse) error {
	if r.GetStream() == runner.RunStream_RUN_STREAM_ASSISTANT {
		s.open = true
		_, err := io.WriteString(s.env.Out, screen.Text(s.env, r.GetText()))
		return err
	}
	if restarts(r) {
		s.endLine() // what is sent again does not go on in the line of what counts no more
	}
	return s.narrator.tell(r)
}

func (s *speaker) endLine() {
	if s.open {
		fmt.Fprintln(s.env.Out)
	}
	s.open = false
}

// restarts tells whether what was said before counts no more.
func restarts(r *runner.StreamRunResponse) bool {
	return r.GetStream() == runner.RunStream_RUN_STREAM_LIFECYCLE && r.GetPhase() == "restart"
}

// narrator tells on a stream of lines what a run does besides its reply.
type narrator struct {
	out     io.Writer
	live    bool // thoughts are told piece by piece, as they come
	quiet   bool // and nothing else is told
	begun   map[string]call
	thought strings.Builder
}

type call struct {
	summary string
	at      time.Time
}

// maxThought is how much of a thought is told in a line, in bytes.
const maxThought = 2000

func (n *narrator) tell(r *runner.StreamRunResponse) error {
	if r.GetStream() == runner.RunStream_RUN_STREAM_REASONING {
		if n.live {
			if n.thought.Len() == 0 {
				fmt.Fprint(n.out, "thought: ")
			}
			fmt.Fprint(n.out, screen.Clean(r.GetText()))
		}
		if n.thought.Len() < maxThought {
			n.thought.WriteString(r.GetText())
		}
		return nil
	}
	switch {
	case n.thought.Len() > 0 && n.live:
		fmt.Fprintln(n.out)
	case n.thought.Len() > 0:
		fmt.Fprintf(n.out, "thought: %s\n", screen.Line(strings.TrimSpace(n.thought.String())))
	}
	n.thought.Reset()
	if restarts(r) && !n.quiet {
		_, err := fmt.Fprintln(n.out, "restart: ignore the text so far, it is sent again")
		return err
	}
	if r.GetStream() == runner.RunStream_RUN_STREAM_COMPACTION && r.GetPhase() == "start" && !n.quiet {
		_, err := fmt.Fprintln(n.out, "digest: older messages are summarized before the answer")
		return err
	}
	if r.GetStream() == runner.RunStream_RUN_STREAM_PROMPT && !n.quiet {
		_, err := fmt.Fprintf(n.out, "%s: %s waits: %s\n", screen.Line(r.GetPhase()), screen.Line(r.GetPromptId()), screen.Line(r.GetText()))
		return err
	}
	if n.quiet || r.GetStream() != runner.RunStream_RUN_STREAM_TOOL {
		return nil
	}
	if n.begun == nil {
		n.begun = map[string]call{}
	}
	switch r.GetPhase() {
	case "start":
		c := call{r.GetTool() + " " + transcript.Gist(r.GetText()), time.Now()}
		if r.GetSummary() != "" {
			c.summary = r.GetSummary()
		}
		n.begun[r.GetCallId()] = c
	case "result", "end": // the other one is of an earlier build
		c, ok := n.begun[r.GetCallId()]
		if !ok {
			c = call{cmp.Or(r.GetSummary(), r.GetTool()), time.Now()}
		}
		outcome := "ok"
		if fail := transcript.ReadResult(r.GetText()).Fail; fail != "" {
			outcome = fail
		}
		_, err := fmt.Fprintf(n.out, "tool: %s: %s in %s\n", screen.Line(c.summary), outcome, transcript.Span(time.Since(c.at)))
		return err
	}
	return nil
}
