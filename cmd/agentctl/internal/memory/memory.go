// Package memory implements the command `agentctl memory`: it shows and edits the memory
// of an agent, and starts a digest of it.
//
// It promises that an edit replaces the file completely or not at all, and never
// overwrites a change that was made since the file was read.
package memory

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Command answers the commands of this package.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "memory",
		Short: "Show, edit and digest an agent's memory",
		Example: `  agentctl memory show alice
  agentctl memory show alice threads/peers/cli-cli
  agentctl memory edit alice < agent.md
  agentctl memory compact alice threads/peers/cli-cli`,
	}, showCommand(e), editCommand(e), compactCommand(e))
}

// layer is one file of memory, for programs.
type layer struct {
	Layer       string `json:"layer"`
	File        string `json:"file"`
	Version     string `json:"version"`
	DigestedID  int64  `json:"digested_id"`
	Compactions int64  `json:"compactions"`
	Pending     int64  `json:"pending"`
	Content     string `json:"content"`
}

// layers reads the memory of an agent or of a conversation.
func layers(c *cobra.Command, e *command.Env, id, thread string) ([]layer, error) {
	r, err := e.Turns().GetMemory(c.Context(), &registry.GetMemoryRequest{AgentId: id, ThreadId: thread})
	if err != nil {
		return nil, err
	}
	list := []layer{}
	for _, m := range r.GetMemory() {
		list = append(list, layer{
			command.Word(m.GetLayer(), "MEMORY_LAYER_", "unspecified"), m.GetName(), m.GetVersion(),
			m.GetDigestedId(), m.GetCompactions(), m.GetPending(), m.GetContent(),
		})
	}
	return list, nil
}

// threadOf answers the optional argument THREAD.
func threadOf(args []string) string { return strings.Join(args[1:], "") }

func showCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID [THREAD]",
		Short: "Show an agent's memory",
		Long: `Show the agent's own memory, or with THREAD all three layers that the model reads
in that conversation: the conversation's, its peer's and the agent's own.`,
		Example: `  agentctl memory show alice
  agentctl memory show alice threads/peers/cli-cli --json`,
		RunE: func(c *cobra.Command, args []string) error {
			list, err := layers(c, e, args[0], threadOf(args))
			if err != nil {
				return err
			}
			names := []string{}
			for _, l := range list {
				names = append(names, l.File)
			}
			return e.Print(list, names, func() error { return printLayers(e, list) })
		},
	}
}

func printLayers(e *command.Env, list []layer) error {
	for _, l := range list {
		title := fmt.Sprintf("--- %s (%s", l.File, l.Layer)
		if l.Compactions > 0 {
			title += fmt.Sprintf(", digested %d times", l.Compactions)
		}
		if l.DigestedID > 0 {
			title += fmt.Sprintf(", up to event %d", l.DigestedID)
		}
		body := strings.TrimRight(screen.Text(e, l.Content), "\n")
		if body == "" {
			body = "(nothing)"
		}
		fmt.Fprintf(e.Out, "%s\n%s\n\n", screen.Paint(e, text.Bold, screen.Line(title+")")), body)
	}
	return nil
}

func compactCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "compact ID [THREAD]",
		Short: "Digest a conversation, or the agent's own memory, now",
		Long: `Let the model digest a conversation into its memory now, under the agent's lease;
without THREAD update the agent's own memory with what it did since the last digest. The
messages themselves are not changed. Use --timeout for a slow model.`,
		Example: `  agentctl memory compact alice threads/peers/cli-cli
  agentctl memory compact alice --timeout 2m`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.RunnerService().CompactMemory(c.Context(), &runner.CompactMemoryRequest{AgentId: args[0], ThreadId: threadOf(args)})
			if err != nil {
				return err
			}
			what := "Nothing new to digest"
			if r.GetName() != "" {
				what = fmt.Sprintf("%s digested from %d messages or records", screen.Line(r.GetName()), r.GetMessages())
			}
			return e.Show(struct {
				File       string `json:"file"`
				Messages   int32  `json:"messages"`
				DigestedID int64  `json:"digested_id"`
			}{r.GetName(), r.GetMessages(), r.GetDigestedId()}, r.GetName(), "%s", what)
		},
	}
}

// pick finds the file to edit.
func pick(list []layer, want, id string) (layer, error) {
	for _, l := range list {
		if l.Layer == want {
			return l, nil
		}
	}
	return layer{}, fault.New(codes.NotFound, fault.InvalidArgument, "the conversation has no memory of a "+want,
		"see 'agentctl memory show "+id+" THREAD'")
}
