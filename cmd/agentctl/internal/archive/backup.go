package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func backupCommand(e *command.Env) *cobra.Command {
	var what backup.Selection
	withHome := false
	c := &cobra.Command{
		Use:   "backup DEST",
		Short: "Back up agents into a file, while they run",
		Long: `Back up agents into DEST, a tar file, or to standard output with -. The services may
run: each database is copied at one state, the inbox before its conversations, so that
nothing that is marked as done is missing. DEST appears when it is complete, verified
and on disk, and never replaces a file.

A backup contains events, journals, settings, texts, memory and sessions of the agents;
not logs, links, sockets, pipes and devices. Without --workdir the files of the working
directories are left out too. With --with-home it also contains theclaw.yaml,
providers.yaml, .env, the key files in the home and its certificates: secrets, in a file of mode
0600; and, when agentd runs, edge.jsonl: who may write to chat accounts, the policy for commands
and the approved tools of MCP servers. A file that cannot be read
is reported with its agent; the backup contains the rest, and the exit code is 1. Backups of agents in a shared database have
the same format, and every backup can be restored into a database or into a home.`,
		Example: `  agentctl backup agents.tar
  agentctl backup --with-home everything.tar
  agentctl backup --agent alice --workdir alice.tar
  agentctl backup - | zstd > agents.tar.zst`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := usageOf(c, args[0]); err != nil {
				return err
			}
			switch {
			case withHome && args[0] == "-":
				return command.Usage(c, "--with-home needs the name of a file: keys are not written to standard output")
			case withHome && e.Flags.Registry != "":
				return command.Usage(c, "--with-home is for the home of this machine, without --registry")
			}
			return save(c.Context(), e, args[0], what, withHome)
		},
	}
	command.AgentsFlag(c, &what.Agents, "only this agent")
	c.Flags().BoolVar(&what.Workdir, "workdir", false, "include the regular files of the working directories")
	c.Flags().BoolVar(&withHome, "with-home", false, "include the settings, keys, certificates and decisions of the home")
	return c
}

func save(ctx context.Context, e *command.Env, dest string, what backup.Selection, withHome bool) (err error) {
	if dest == "-" {
		s, err := fetch(ctx, e, e.Out, what)
		if err != nil {
			return err
		}
		e.Note("%s", words(s))
		return incomplete(e, s)
	}
	var s archive.Summary
	var home homeContent
	if err := newfile.Make(dest, "a backup", func(f *os.File) (err error) {
		if withHome {
			s, home, err = fetchHome(ctx, e, f, what)
		} else {
			s, err = fetch(ctx, e, f, what)
		}
		return err
	}); err != nil {
		return err
	}
	text := dest + ": " + words(s)
	if withHome {
		text += "\nand of the home: " + home.names()
	}
	err = e.Show(struct {
		Path string `json:"path"`
		archive.Summary
		Home *homeContent `json:"home,omitempty"`
	}{dest, s, map[bool]*homeContent{true: &home}[withHome]}, dest, "%s", text)
	home.noteLeftOut(e)
	return errors.Join(err, incomplete(e, s))
}

// incomplete reports what is not in a backup. Its error sets the exit code when that is
// a file that should be in it.
func incomplete(e *command.Env, s archive.Summary) error {
	const named = 10
	var others []archive.LeftOut
	missing := 0
	for _, l := range s.LeftOut {
		if !l.Missing {
			others = append(others, l)
		} else if missing++; missing <= named {
			e.Note("%s: %s is not, or not completely, in the backup: %s", l.Agent, boundary.Name(string(l.Path)), l.Why)
		}
	}
	if s.Missing > min(missing, named) {
		e.Note("%d more files are not in the backup; its manifest.json names them", s.Missing-min(missing, named))
	}
	if n := len(others) + s.More - (s.Missing - missing); n > 0 && len(others) > 0 {
		e.Note("%d links and other special files are not in the backup, such as %s: %s (%s)", n, others[0].Agent, boundary.Name(string(others[0].Path)), others[0].Why)
	}
	if s.Missing > 0 {
		return &command.ReportedError{}
	}
	return nil
}

func words(s archive.Summary) string {
	return fmt.Sprintf("%s (%s), %s, %s, %s", command.Count(len(s.Agents), "agent"), strings.Join(s.Agents, ", "),
		command.Count(s.Databases, "database"), command.Count(s.Files, "file"), size(s.Bytes))
}

// fetch writes a backup to out and reads along, so that what is there has been
// verified.
func fetch(ctx context.Context, e *command.Env, out io.Writer, what backup.Selection) (archive.Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := produce(ctx, e, pw, what)
		_ = pw.CloseWithError(err) // nil: the end
		done <- err
	}()
	s, err := archive.Inspect(ctx, io.TeeReader(pr, out))
	_ = pr.CloseWithError(err)
	if why := <-done; why != nil && (err == nil || errors.Is(err, why)) {
		return s, ended(ctx, why)
	}
	return s, err
}

func produce(ctx context.Context, e *command.Env, w io.Writer, what backup.Selection) (err error) {
	home, err := rest(e, false)
	if err != nil {
		return err
	}
	if home != nil {
		defer func() { err = errors.Join(err, home.close()) }()
		if err := backup.Sweep(home.Home); err != nil {
			return err
		}
		return backup.Write(ctx, w, backup.Resting(home.Home), what)
	}
	in, err := e.Agents().BackupAgents(ctx, &registry.BackupAgentsRequest{AgentIds: what.Agents, Workdir: what.Workdir})
	if err != nil {
		return err
	}
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(m.GetChunk()); err != nil {
			return err
		}
	}
}
