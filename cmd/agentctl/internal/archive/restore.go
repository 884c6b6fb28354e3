package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/backup"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func restoreCommand(e *command.Env) *cobra.Command {
	var what backup.Choice
	withHome := false
	c := &cobra.Command{
		Use:   "restore SRC",
		Short: "Restore agents from a backup",
		Long: `Restore agents from SRC, a file that 'agentctl backup' has written, or from standard
input with -. Nothing is changed before the complete file was read and verified. An agent
that exists is refused; with --replace it must be stopped, and its directory is kept; in
a database no agent is replaced.

Agents that were started when the backup was made continue at once. What happened after
the backup is not in it: a message that waited then is answered again, a reply that
waited then is sent again with its key, flagged as a possible repeat.

With --with-home the settings, keys and certificates of a backup that holds them are
restored first. A file that exists and differs is refused; with --replace the existing one is
kept as NAME.old. agentd adds edge.jsonl when it starts and removes it: who may write to chat
accounts, the policy for commands and the approved tools of MCP servers. What the home has
decided already stays.`,
		Example: `  agentctl restore agents.tar
  agentctl restore agents.tar --agent alice --replace
  agentctl restore agents.tar --agent alice --as alice2
  zstd -dc agents.tar.zst | agentctl restore -`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := usageOf(c, args[0]); err != nil {
				return err
			}
			if withHome && e.Flags.Registry != "" {
				return command.Usage(c, "--with-home is for the home of this machine, without --registry")
			}
			return load(c.Context(), e, args[0], what, withHome)
		},
	}
	command.AgentsFlag(c, &what.Agents, "only this agent")
	command.TextFlag(c.Flags(), &what.As, "as", command.NewAgent, "new name of the one restored agent, which is then stopped")
	c.Flags().BoolVar(&what.Replace, "replace", false, "replace existing agents that are stopped")
	c.Flags().BoolVar(&withHome, "with-home", false, "restore the settings, keys, certificates and decisions of the home too")
	return c
}

func load(ctx context.Context, e *command.Env, src string, what backup.Choice, withHome bool) (err error) {
	in := e.In
	if src != "-" {
		f, err := os.Open(src)
		if err != nil {
			return newfile.Fault(err, "check the name")
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	if in, err = loadHome(e, in, withHome, what.Replace); err != nil {
		return command.Data(err)
	}
	done, err := install(ctx, e, in, what)
	if err != nil {
		return command.Data(ended(ctx, err)) // what the backup holds, not the command line
	}
	for _, r := range done {
		if r.Left != "" {
			e.Note("%s: the working directory was not restored: %s", r.Agent, r.Left)
		}
	}
	t := screen.NewTable(e, "agent", "threads", "events", "last message", "aborted", "the old one is kept in").Data(struct {
		Agents []backup.Restored `json:"agents"`
	}{done})
	return screen.List(t, done, func(r backup.Restored) []any {
		return []any{r.Agent, r.Threads, r.Events, r.LastInboxID, r.Aborted, r.Kept}
	})
}

func install(ctx context.Context, e *command.Env, in io.Reader, what backup.Choice) (_ []backup.Restored, err error) {
	home, err := rest(e, true)
	if err != nil {
		return nil, err
	}
	if home != nil {
		defer func() { err = errors.Join(err, home.close()) }()
		return backup.Restore(ctx, in, home.Home, what)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, err := e.Agents().RestoreAgents(ctx)
	if err != nil {
		return nil, err
	}
	if err := upload(out, in, &registry.RestoreAgentsRequest{AgentIds: what.Agents, NewAgentId: what.As, Replace: what.Replace}); err != nil {
		return nil, err
	}
	r, err := out.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	var done []backup.Restored
	for _, a := range r.GetAgents() {
		done = append(done, backup.Restored{
			Agent: a.GetAgentId(), Threads: a.GetThreads(), Events: a.GetEvents(),
			LastInboxID: a.GetLastInboxId(), Aborted: a.GetAborted(), Kept: a.GetKept(), Left: a.GetWorkdirLeft(),
		})
	}
	return done, nil
}

// upload sends the request and then the tar. When the registry has ended the
// stream its answer says why, which the caller receives.
func upload(out registry.AgentService_RestoreAgentsClient, in io.Reader, first *registry.RestoreAgentsRequest) error {
	m, buf := first, make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(in, buf)
		m.Chunk = buf[:n]
		if sent := out.Send(m); sent != nil {
			if errors.Is(sent, io.EOF) {
				return nil
			}
			return sent
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read backup: %w", err)
		}
		m, buf = &registry.RestoreAgentsRequest{}, make([]byte, 1<<20) // the transport may keep it
	}
}
