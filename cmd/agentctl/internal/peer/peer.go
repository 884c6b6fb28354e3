// Package peer implements the commands `agentctl export` and `agentctl erase`: all stored
// data of one peer of an agent is exported, or erased.
//
// The registry finds and processes the data, under its rules; this package opens no
// database.
package peer

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const whichPeer = "id of the peer, or the complete source address of one of its messages"

// Commands answers export and erase.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{exportCommand(e), eraseCommand(e)}
}

func exportCommand(e *command.Env) *cobra.Command {
	var who string
	c := &cobra.Command{
		Use:   "export ID DEST",
		Short: "Export all data that an agent stores about one peer",
		Long: `Write all data that agent ID stores about one peer into DEST, a tar file, or to standard
output with -: its messages and the replies, the steps for each, deliveries, and the
peer's memory and sessions, as JSON lines and text. The agent may run meanwhile. Of a
conversation that several peers share only the peer's own turns are exported.`,
		Example: `  agentctl export alice bob.tar --peer bob
  agentctl export alice - --peer external:telegram:main:dm:12:12 | tar t`,
		RunE: func(c *cobra.Command, args []string) error {
			if who == "" {
				return command.Usage(c, "--peer is missing: who is it about?")
			}
			in, err := e.Agents().ExportPeer(c.Context(), &registry.ExportPeerRequest{AgentId: args[0], Peer: who})
			if err != nil {
				return err
			}
			next := func() ([]byte, error) {
				m, err := in.Recv()
				return m.GetChunk(), err
			}
			if args[1] == "-" {
				return copyTo(e.Out, next)
			}
			if err := newfile.Make(args[1], "an export", func(f *os.File) error { return copyTo(f, next) }); err != nil {
				return err
			}
			return e.Print(struct {
				Path string `json:"path"`
			}{args[1]}, args[1:], func() error { return nil })
		},
	}
	command.TextFlag(c.Flags(), &who, "peer", command.Peer, whichPeer)
	return c
}

func copyTo(w io.Writer, next func() ([]byte, error)) error {
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

func eraseCommand(e *command.Env) *cobra.Command {
	var who string
	var yes bool
	c := &cobra.Command{
		Use:   "erase ID",
		Short: "Erase the data that an agent stores about one peer",
		Long: `Show what agent ID stores about one peer, and with --yes erase it: the contents of the
peer's messages and of the replies, arguments and results of the steps for them, the
peer's memory and sessions, and the approvals requested for them. Ids, times and sources
of events are kept, so that other programs can still read the threads; the hash chains
remain verifiable. On one machine the bytes are removed from the databases and from
events.jsonl when the command ends; with PostgreSQL the rows are, and the server clears
its pages.

The agent must be stopped, and no message or reply of the peer may be waiting,
undelivered, or a dead letter. Not erased are backups, the audit log, workdir/,
memory/agent.md and messages already sent to other agents.`,
		Example: `  agentctl erase alice --peer bob
  agentctl stop alice && agentctl erase alice --peer bob --yes`,
		RunE: func(c *cobra.Command, args []string) error {
			if who == "" {
				return command.Usage(c, "--peer is missing: whose data is to be erased?")
			}
			r, err := e.Agents().ErasePeer(c.Context(), &registry.ErasePeerRequest{AgentId: args[0], Peer: who, Apply: yes})
			if err != nil {
				return err
			}
			return show(e, r, yes)
		},
	}
	command.TextFlag(c.Flags(), &who, "peer", command.Peer, whichPeer)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "erase the data")
	return c
}

// row is a thread for programs.
type row struct {
	Thread string `json:"thread"`
	Events int64  `json:"events"`
	Turns  int64  `json:"turns"`
	Whole  bool   `json:"whole"`
}

func show(e *command.Env, r *registry.ErasePeerResponse, done bool) error {
	rows := []row{}
	for _, t := range r.GetThreads() {
		rows = append(rows, row{t.GetThreadId(), t.GetEvents(), t.GetTurns(), t.GetWhole()})
	}
	verb := "would be erased"
	if done {
		verb = "erased"
	}
	t := screen.NewTable(e, "thread", "events", "turns", "all of it").Cut("thread").Data(struct {
		ChannelType string   `json:"channel_type"`
		ChannelID   string   `json:"channel_id"`
		PeerID      string   `json:"peer_id"`
		Erased      bool     `json:"erased"`
		Threads     []row    `json:"threads"`
		Files       []string `json:"files"`
	}{r.GetChannelType(), r.GetChannelId(), r.GetPeerId(), done, rows, append([]string{}, r.GetFiles()...)}).Then(func() {
		for _, f := range r.GetFiles() {
			fmt.Fprintln(e.Out, screen.Line(f))
		}
		fmt.Fprintf(e.Out, "%s of %s %s: %s, %s %s\n", screen.Line(r.GetPeerId()), screen.Line(r.GetChannelType()), screen.Line(r.GetChannelId()),
			command.Count(len(rows), "thread"), command.Count(len(r.GetFiles()), "file"), verb)
		if !done {
			e.Note("nothing was changed: stop the agent and add --yes to do it")
		}
	})
	return screen.List(t, rows, func(w row) []any {
		return []any{w.Thread, w.Events, w.Turns, map[bool]string{true: "yes", false: "no"}[w.Whole]}
	})
}
