package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// note puts a change on record. Where there is no home there is no record.
func note(ctx context.Context, e *command.Env, change registry.IdentityChange, names ...string) {
	if err := record(ctx, e, change, names); err != nil {
		fmt.Fprintf(e.Err, "not in the audit log: %s\n", strings.TrimPrefix(fault.Line(err), "Error: "))
	}
}

func record(ctx context.Context, e *command.Env, change registry.IdentityChange, names []string) error {
	home, err := e.Home()
	if err != nil {
		return err
	}
	if _, err := os.Stat(home.Path()); err != nil {
		return nil
	}
	unlock, pid, err := homelock.Take(home)
	if err != nil {
		return err
	}
	if pid != "" { // its log has one writer
		_, err := e.Identities().NoteIdentityChange(ctx, &registry.NoteIdentityChangeRequest{Change: change, Names: names})
		return err
	}
	log, err := audit.Open(home.AuditDir(), nil)
	if err == nil {
		err = log.Append(audit.Entry{
			Actor: "owner", Action: audit.IdentityAction(change.String()), Outcome: "allowed", Detail: strings.Join(names, " "),
		}, true)
		err = errors.Join(err, log.Close())
	}
	return errors.Join(err, unlock())
}
