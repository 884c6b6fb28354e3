// Package decisions exports what people decided for a home, for a backup of it, and adds it to another home: who may
// write to channel accounts and who is an owner, the policy for commands, and which tools of MCP servers are approved or
// denied.
//
// The rows are JSON, one on each line, in a file of at most 1 MiB. A restore leaves that file in the home, and the
// registry adds it when it starts:
//
//	agentctl backup <-- Export              agentctl restore --> edge.jsonl --> AddFile --> tables
//	                                                                 '-- removed when the rows are on disk
//
// It promises that a decision of the home is never replaced, that a file is added completely or, when one of its rows
// cannot be used, not at all, and that adding may be interrupted and repeated. Rows of kinds that this version does not
// know are skipped.
//
// Codes of people who wait, cursors and descriptions of tools are not exported. A tool is what was approved when its
// server reports a description with the same sum; until then models do not have it.
package decisions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// addLimit bounds a start whose database does not answer.
const addLimit = 30 * time.Second

// Policies stores the policy for commands.
type Policies interface {
	ExecPolicy(ctx context.Context) (store.ExecPolicy, error)
	PutExecPolicy(ctx context.Context, p store.ExecPolicy) error
}

// Deps are the dependencies of a Store.
type Deps struct {
	wire.Faults
	Pairings store.Pairings
	Policies Policies
	Pins     store.Pins
	Log      *slog.Logger
	// Record is called with a description of the rows before they are added; its error prevents that.
	Record func(ctx context.Context, what string) error
}

// Store reads and adds the decisions of one home. The zero value is not usable; see New.
type Store struct{ Deps }

// New returns the store.
func New(d Deps) *Store { return &Store{d} }

// Export returns the rows; empty when nothing was decided. Errors: RESOURCE_EXHAUSTED when they are larger than a file
// of a home may be, 1 MiB.
func (s *Store) Export(ctx context.Context) ([]byte, error) {
	people, err := s.Pairings.Pairings(ctx, "")
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	policy, err := s.Policies.ExecPolicy(ctx)
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	tools, err := s.Pins.Pins(ctx, "")
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	var r rows
	for _, p := range people {
		if p.State == store.PairingApproved || p.State == store.PairingBlocked {
			r.People = append(r.People, personOf(p))
		}
	}
	if policy.Version > 0 {
		r.Policy = &policyRow{Kind: kindPolicy, Policy: policy.Body}
	}
	for _, p := range tools {
		if decided(p) {
			r.Tools = append(r.Tools, toolOf(p))
		}
	}
	out, err := r.encode()
	if err != nil {
		return nil, fmt.Errorf("encode decisions: %w", err)
	}
	if len(out) > safefile.MaxSize {
		return nil, fault.New(codes.ResourceExhausted, fault.Overloaded,
			fmt.Sprintf("the decisions of the home are %d bytes, more than a file of it may have (%d)", len(out), safefile.MaxSize),
			"revoke people who no longer write with 'agentctl pair revoke', or keep a copy of the complete home")
	}
	return out, nil
}

// AddFile adds the rows of the file that a restore left in a home, and removes it; there may be none. After an error the
// file is where it was, and is added by a later call.
func (s *Store) AddFile(ctx context.Context, home string) (err error) {
	root, err := os.OpenRoot(home)
	if err != nil {
		return fmt.Errorf("open home: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	data, err := safefile.Read(root, layout.EdgeName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", layout.EdgeName, err)
	}
	r, err := decode(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", layout.EdgeName, err)
	}
	ctx, cancel := context.WithTimeout(ctx, addLimit)
	defer cancel()
	if err := s.Record(ctx, r.String()); err != nil {
		return err
	}
	if err := s.add(ctx, r); err != nil {
		return fmt.Errorf("add %s: %w", layout.EdgeName, err)
	}
	if len(r.Unknown) > 0 {
		s.Log.Warn("rows of "+layout.EdgeName+" are skipped: this version does not know their kinds", "kinds", strings.Join(r.Unknown, ", "))
	}
	s.Log.Info("the decisions of a restored home are added", "rows", r.String())
	// A power loss must not bring the file back: it would undo what is revoked from now on.
	if err := errors.Join(root.Remove(layout.EdgeName), safefile.SyncDir(root, ".")); err != nil {
		return fmt.Errorf("remove %s, whose rows are added: %w", layout.EdgeName, err)
	}
	return nil
}

// add adds rows. What the home has decided stays.
func (s *Store) add(ctx context.Context, r rows) error {
	if len(r.People) > 0 {
		if err := s.Pairings.ChangePairings(ctx, "", nil, func(have []store.Pairing) ([]store.Pairing, error) { return withPeople(have, r.People), nil }); err != nil {
			return s.Fault("", "", err)
		}
	}
	if r.Policy != nil {
		if err := s.addPolicy(ctx, r.Policy.document); err != nil {
			return err
		}
	}
	servers := map[string][]toolRow{}
	for _, t := range r.Tools {
		servers[t.Server] = append(servers[t.Server], t)
	}
	for server, tools := range servers {
		if err := s.Pins.ChangePins(ctx, server, func(have []store.Pin) ([]store.Pin, error) { return withTools(have, tools), nil }); err != nil {
			return s.Fault("", "", err)
		}
	}
	return nil
}

// withPeople adds people about whom nothing was decided yet; the code of one who waits ends.
func withPeople(have []store.Pairing, people []personRow) []store.Pairing {
	type name struct{ account, peer string }
	at := make(map[name]int, len(have))
	for i, p := range have {
		at[name{p.Account, p.Peer}] = i
	}
	for _, one := range people {
		p := one.pairing()
		i, there := at[name{p.Account, p.Peer}]
		switch {
		case !there:
			at[name{p.Account, p.Peer}] = len(have)
			have = append(have, p)
		case have[i].State == store.PairingPending:
			have[i] = p
		}
	}
	return have
}

// addPolicy stores the policy where there is none.
func (s *Store) addPolicy(ctx context.Context, d execpolicy.Document) error {
	have, err := s.Policies.ExecPolicy(ctx)
	if err != nil {
		return s.Fault("", "", err)
	}
	if have.Version > 0 {
		return nil
	}
	body, err := d.JSON()
	if err != nil {
		return err
	}
	if err := s.Policies.PutExecPolicy(ctx, store.ExecPolicy{Version: 1, Body: body}); err != nil && !errors.Is(err, store.ErrMoved) {
		return s.Fault("", "", err)
	}
	return nil
}

// withTools adds the tools of a server about which nothing was decided yet.
func withTools(have []store.Pin, tools []toolRow) []store.Pin {
	have = slices.Clone(have) // the store compares
	for _, one := range tools {
		i := slices.IndexFunc(have, func(p store.Pin) bool { return p.Tool == one.Tool })
		switch {
		case i < 0:
			have = append(have, one.pin(store.Pin{Server: one.Server, Tool: one.Tool, Class: one.Class}))
		case !decided(have[i]):
			have[i] = one.pin(have[i])
		}
	}
	slices.SortFunc(have, store.ComparePins)
	return have
}

func decided(p store.Pin) bool { return p.ApprovedSHA != "" || p.DeniedSHA != "" }

func damaged(line int, what string) error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("line %d: %s", line, boundary.Name(what)),
		"restore it again, or remove the line or the file, and start agentd again")
}
