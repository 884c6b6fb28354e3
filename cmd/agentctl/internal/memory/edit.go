package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func editCommand(e *command.Env) *cobra.Command {
	var peer bool
	c := &cobra.Command{
		Use:   "edit ID [THREAD]",
		Short: "Edit an agent's memory, in $EDITOR or from standard input",
		Long: `Edit the agent's own memory, or with THREAD that of a conversation, or with THREAD and
--peer that of its peer. At a terminal $VISUAL or $EDITOR opens it; otherwise standard
input replaces it. If it changed meanwhile, nothing is written.`,
		Example: `  agentctl memory edit alice
  agentctl memory edit alice threads/peers/cli-cli --peer
  printf 'Alice likes tea.\n' | agentctl memory edit alice`,
		RunE: func(c *cobra.Command, args []string) error {
			thread := threadOf(args)
			want := "agent"
			switch {
			case peer && thread == "":
				return command.Usage(c, "--peer needs THREAD")
			case peer:
				want = "peer"
			case thread != "":
				want = "thread"
			}
			list, err := layers(c, e, args[0], thread)
			if err != nil {
				return err
			}
			l, err := pick(list, want, args[0])
			if err != nil {
				return err
			}
			return edit(c.Context(), e, args[0], l)
		},
	}
	c.Flags().BoolVar(&peer, "peer", false, "the memory of the peer of THREAD")
	return c
}

// edit gets the new text and writes it over the version that was read.
func edit(ctx context.Context, e *command.Env, id string, l layer) error {
	content, left, err := changed(ctx, e, l)
	keep := false // the text a person wrote and that could not be stored
	defer func() {
		if left != "" && !keep {
			_ = os.RemoveAll(filepath.Dir(left))
		}
	}()
	if err != nil {
		keep = len(content) > 0
		return err
	}
	if string(content) == l.Content {
		return told(e, l, l.Version, "unchanged")
	}
	r, err := e.Agents().WriteAgentFile(ctx, &registry.WriteAgentFileRequest{AgentId: id, Name: l.File, Content: content, IfVersion: l.Version})
	if err != nil {
		keep = true
		f := fault.From(command.Data(err))
		if left != "" {
			return fault.Wrap(fault.New(f.Code, f.Reason, f.What, "your text is in "+left+"; read the memory again and repeat the change"), err)
		}
		return err
	}
	return told(e, l, r.GetVersion(), "written")
}

func told(e *command.Env, l layer, version, what string) error {
	return e.Show(struct {
		File    string `json:"file"`
		Version string `json:"version"`
	}{l.File, version}, l.File, "%s: %s", screen.Line(l.File), what)
}

// changed answers the new text, from the editor at a terminal, with the file it
// is in, else from standard input.
func changed(ctx context.Context, e *command.Env, l layer) (content []byte, left string, err error) {
	in, out := e.Terminal()
	if in == nil {
		content, err = io.ReadAll(io.LimitReader(e.In, maxFile+1))
	} else {
		content, left, err = opened(ctx, e, l, in, out)
	}
	switch {
	case err != nil:
		return nil, left, err
	case len(content) > maxFile:
		return content, left, fault.New(codes.FailedPrecondition, fault.InvalidArgument, fmt.Sprintf("the text has more than %d bytes", maxFile), "shorten it")
	case !utf8.Valid(content):
		return content, left, fault.New(codes.FailedPrecondition, fault.InvalidArgument, "the text is not valid UTF-8", "convert it to UTF-8, with iconv for example")
	}
	return content, left, nil
}

// opened lets a person edit a copy that nobody else can read.
func opened(ctx context.Context, e *command.Env, l layer, in, out *os.File) ([]byte, string, error) {
	words := strings.Fields(e.Getenv("VISUAL"))
	if len(words) == 0 {
		words = strings.Fields(e.Getenv("EDITOR"))
	}
	if len(words) == 0 {
		words = []string{"vi"}
	}
	dir, err := os.MkdirTemp("", "memory-")
	if err != nil {
		return nil, "", fmt.Errorf("make a copy to edit: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(l.File))
	if err := os.WriteFile(path, []byte(l.Content), 0o600); err != nil {
		return nil, "", errors.Join(fmt.Errorf("make a copy to edit: %w", err), os.RemoveAll(dir))
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], path)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, e.Err
	if err := cmd.Run(); err != nil {
		return nil, path, fault.Wrap(fault.New(codes.FailedPrecondition, fault.InvalidArgument, fmt.Sprintf("the editor %q failed", words[0]),
			"set EDITOR to one that works; nothing was changed"), err)
	}
	content, err := os.ReadFile(path)
	return content, path, err
}
