package setting

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxFile is the largest text file of an agent in bytes.
const maxFile = 1 << 20

func fileCommand(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "file",
		Short: "Read and write the text files of an agent",
		Example: `  agentctl file get alice IDENTITY.md
  agentctl file put alice IDENTITY.md < IDENTITY.md`,
	}, fileGetCommand(e), filePutCommand(e))
}

func fileGetCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID NAME",
		Short: "Print a text file of an agent",
		Long:  `Print a text file of an agent: IDENTITY.md, USAGE.md, config.yaml or memory/<name>.md.`,
		Example: `  agentctl file get alice IDENTITY.md
  agentctl file get alice memory/agent.md --json | jq -r .version`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Agents().ReadAgentFile(c.Context(), &registry.ReadAgentFileRequest{AgentId: args[0], Name: args[1]})
			if err != nil {
				return err
			}
			if r.GetVersion() == "" {
				return fault.New(codes.NotFound, fault.InvalidArgument, fmt.Sprintf("agent '%s' has no %s", args[0], args[1]),
					fmt.Sprintf("write it with 'agentctl file put %s %s'", args[0], args[1]))
			}
			return e.Print(struct {
				AgentID string `json:"agent_id"`
				Name    string `json:"name"`
				Version string `json:"version"`
				Content string `json:"content"`
			}{args[0], args[1], r.GetVersion(), string(r.GetContent())}, args[1:], func() error {
				_, err = io.WriteString(e.Out, screen.Text(e, string(r.GetContent())))
				return err
			})
		},
	}
}

func filePutCommand(e *command.Env) *cobra.Command {
	from, version := "-", ""
	c := &cobra.Command{
		Use:   "put ID NAME",
		Short: "Replace a text file of an agent with standard input",
		Long: `Replace a text file of an agent with standard input or with --from. With
--if-version nothing is written if the file has changed since that version.`,
		Example: `  agentctl file put alice IDENTITY.md < IDENTITY.md
  agentctl file put alice memory/agent.md --from notes.md`,
		RunE: func(c *cobra.Command, args []string) error {
			content, err := readFile(e, from)
			if err != nil {
				return err
			}
			r, err := e.Agents().WriteAgentFile(c.Context(), &registry.WriteAgentFileRequest{AgentId: args[0], Name: args[1], Content: content, IfVersion: version})
			if fault.Is(err, fault.ConfigInvalid) {
				return command.Data(err)
			}
			if err != nil {
				return err
			}
			return e.Show(struct {
				AgentID string `json:"agent_id"`
				Name    string `json:"name"`
				Version string `json:"version"`
			}{args[0], args[1], r.GetVersion()}, args[1], "%s", r.GetVersion())
		},
	}
	command.TextFlag(c.Flags(), &from, "from", command.File, "file to read; - is standard input")
	command.TextFlag(c.Flags(), &version, "if-version", command.Revision, "write only if this is the current version")
	return c
}

// readFile refuses what the registry would refuse, before it is sent.
func readFile(e *command.Env, from string) ([]byte, error) {
	in := e.In
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return nil, fault.Wrap(fault.New(codes.NotFound, fault.InvalidArgument, err.Error(), "name a file that can be read"), err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", from, err)
	case len(b) > maxFile:
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument, fmt.Sprintf("the file has more than %d bytes", maxFile), "shorten it")
	case !utf8.Valid(b):
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument, "the file is not valid UTF-8", "convert it to UTF-8, with iconv for example")
	}
	return b, nil
}
