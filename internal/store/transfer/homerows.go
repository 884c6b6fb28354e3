package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
)

const maxApprovals = 10000 // and as many questions

func today() string { return time.Now().UTC().Format(time.DateOnly) }

// of opens the home's own tables; nil where there are none.
func openHome(ctx context.Context, at *agentdir.Home, create bool) (*homedb.DB, error) {
	if _, err := os.Stat(at.RegistryDB()); !create && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return homedb.Open(ctx, at.RegistryDB())
}

// importHomeRows copies an agent's rows in the tables of the home, its usage of today,
// its approvals, its questions and its rules for commands, and the tools of MCP servers, cursors and pairings of
// channel accounts that the database does not know, into the database. They create no message and lose none, so they are not
// in the digest of a move. They are copied in the transaction of the move; a repeat
// changes nothing.
func importHomeRows(ctx context.Context, tx pgx.Tx, agent string, at *agentdir.Home) (err error) {
	h, err := openHome(ctx, at, false)
	if err != nil || h == nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	used, err := h.Usage(ctx, today())
	if err != nil {
		return err
	}
	asked, err := h.Approvals(ctx, "", agent, "", maxApprovals)
	if err != nil {
		return err
	}
	questions, err := h.Questions(ctx, "", agent, "", maxApprovals)
	if err != nil {
		return err
	}
	var b pgx.Batch
	queue := func(sql string, args ...any) {
		for i := range args {
			args[i] = unit.Stored(args[i])
		}
		b.Queue(sql+" ON CONFLICT DO NOTHING", args...)
	}
	for _, u := range used {
		if u.Agent == agent {
			queue("INSERT INTO usage(agent_id, day, peer, messages, tokens, micros) VALUES($1,$2,$3,$4,$5,$6)", u.Agent, u.Day, unit.Indexed(u.Peer), u.Messages, u.Tokens, u.Micros)
		}
	}
	for _, a := range asked {
		queue(`INSERT INTO approval(agent_id, id, thread, key, command, cwd, reason, digest, state, token, requested, expires,
			kind, tool, summary, patterns, external, decision, decided_by) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19)`,
			a.Agent, a.ID, a.Thread, a.Key, a.Command, a.Cwd, a.Reason, a.Digest, a.State, int64(a.Token), a.Requested.UnixMilli(), a.Expires.UnixMilli(),
			a.Kind, a.Tool, a.Summary, a.Patterns, a.External, a.Decision, a.By)
	}
	for _, q := range questions {
		options, err := store.EncodeOptions(q.Options)
		if err != nil {
			return err
		}
		queue(`INSERT INTO question(agent_id, id, thread, key, text, options, allow_text, peer, after_id, state, answer, answered_by, requested, expires, ended)
			VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)`,
			q.Agent, q.ID, q.Thread, q.Key, q.Text, options, q.AllowText, q.Peer, q.After, q.State, q.Answer, q.By,
			store.Millis(q.Requested), store.Millis(q.Expires), store.Millis(q.Ended))
	}
	pins, err := h.Pins(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range pins {
		home.QueuePin(&b, p, "DO NOTHING")
	}
	cursors, err := h.Cursors(ctx)
	if err != nil {
		return err
	}
	for _, c := range cursors {
		home.QueueCursor(&b, c, "DO NOTHING")
	}
	pairings, err := h.Pairings(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range pairings {
		home.QueuePairing(&b, p, "DO NOTHING")
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return unit.Problem(err)
	}
	from, err := h.ExecPolicy(ctx)
	if err != nil {
		return err
	}
	to, err := policyIn(ctx, tx)
	if err != nil {
		return err
	}
	return moveRules(agent, from, to, func(p store.ExecPolicy) error {
		_, err := tx.Exec(ctx, "INSERT INTO exec_policy(one, version, body) VALUES(1, $1, $2) ON CONFLICT (one) DO UPDATE SET version = excluded.version, body = excluded.body", p.Version, string(p.Body))
		return unit.Problem(err)
	})
}

// policyIn reads the policy for commands in the database, which no other transaction changes until tx ends.
func policyIn(ctx context.Context, tx pgx.Tx) (p store.ExecPolicy, err error) {
	if _, err := tx.Exec(ctx, "LOCK TABLE exec_policy IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return p, unit.Problem(err)
	}
	err = tx.QueryRow(ctx, "SELECT version, body FROM exec_policy").Scan(&p.Version, &p.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ExecPolicy{}, nil
	}
	return p, unit.Problem(err)
}

// moveRules puts what one policy for commands has of an agent into the other.
func moveRules(agent string, from, to store.ExecPolicy, put func(store.ExecPolicy) error) error {
	if from.Version == 0 {
		return nil
	}
	source, err := execpolicy.Parse(from.Body)
	if err != nil {
		return fmt.Errorf("read policy for commands: %w", err)
	}
	target := execpolicy.NewDocument()
	if to.Version > 0 {
		if target, err = execpolicy.Parse(to.Body); err != nil {
			return fmt.Errorf("read policy for commands: %w", err)
		}
	}
	target.Take(source, agent)
	body, err := target.JSON()
	if err != nil {
		return fmt.Errorf("write policy for commands: %w", err)
	}
	if bytes.Equal(body, to.Body) {
		return nil // a repeat
	}
	return put(store.ExecPolicy{Version: to.Version + 1, Body: body})
}

// exportHomeRows copies the usage of today, the approvals, the questions and the rules for commands of an agent, and
// the tools of MCP servers, cursors and pairings that the home does not know, from the database into the home.
func exportHomeRows(ctx context.Context, tx pgx.Tx, agent string, at *agentdir.Home) (err error) {
	var used []store.Used
	found, err := tx.Query(ctx, "SELECT peer, messages, tokens, micros FROM usage WHERE agent_id = $1 AND day = $2", agent, today())
	if err != nil {
		return unit.Problem(err)
	}
	u := store.Used{Agent: agent, Day: today()}
	if _, err := pgx.ForEachRow(found, []any{&u.Peer, &u.Messages, &u.Tokens, &u.Micros}, func() error {
		one := u
		used = append(used, one)
		return unit.Restore([]any{&used[len(used)-1].Peer})
	}); err != nil {
		return fmt.Errorf("read usage: %w", unit.Problem(err))
	}
	var asked []store.Approval
	if found, err = tx.Query(ctx, "SELECT id, thread, key, command, cwd, reason, digest, state, token, requested, expires, kind, tool, summary, patterns, external, decision, decided_by FROM approval WHERE agent_id = $1 ORDER BY id LIMIT $2", agent, maxApprovals); err != nil {
		return unit.Problem(err)
	}
	a := store.Approval{Agent: agent}
	var token, requested, expires int64
	dest := []any{
		&a.ID, &a.Thread, &a.Key, &a.Command, &a.Cwd, &a.Reason, &a.Digest, &a.State, &token, &requested, &expires,
		&a.Kind, &a.Tool, &a.Summary, &a.Patterns, &a.External, &a.Decision, &a.By,
	}
	if _, err := pgx.ForEachRow(found, dest, func() error {
		err := unit.Restore(dest)
		a.Token, a.Requested, a.Expires = uint64(token), time.UnixMilli(requested), time.UnixMilli(expires)
		asked = append(asked, a)
		return err
	}); err != nil {
		return fmt.Errorf("read approvals: %w", unit.Problem(err))
	}
	from, err := policyIn(ctx, tx)
	if err != nil {
		return err
	}
	if found, err = tx.Query(ctx, "SELECT "+home.QuestionColumns+" FROM question WHERE agent_id = $1 ORDER BY id LIMIT $2", agent, maxApprovals); err != nil {
		return unit.Problem(err)
	}
	questions, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (store.Question, error) { return home.ScanQuestion(row.Scan) })
	if err != nil {
		return fmt.Errorf("read questions: %w", unit.Problem(err))
	}
	if found, err = tx.Query(ctx, "SELECT "+home.PinColumns+" FROM mcp_pin ORDER BY server, tool"); err != nil {
		return unit.Problem(err)
	}
	pins, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (store.Pin, error) { return home.ScanPin(row.Scan) })
	if err != nil {
		return fmt.Errorf("read pins: %w", unit.Problem(err))
	}
	if found, err = tx.Query(ctx, "SELECT "+home.CursorColumns+" FROM cursor ORDER BY account, identity, name"); err != nil {
		return unit.Problem(err)
	}
	cursors, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (store.Cursor, error) { return home.ScanCursor(row.Scan) })
	if err != nil {
		return fmt.Errorf("read cursors: %w", unit.Problem(err))
	}
	if found, err = tx.Query(ctx, "SELECT "+home.PairingColumns+" FROM pairing ORDER BY account, peer"); err != nil {
		return unit.Problem(err)
	}
	pairings, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (store.Pairing, error) { return home.ScanPairing(row.Scan) })
	if err != nil {
		return fmt.Errorf("read pairings: %w", unit.Problem(err))
	}
	h, err := openHome(ctx, at, len(used)+len(asked)+len(questions)+len(pins)+len(cursors)+len(pairings) > 0 || from.Version > 0)
	if err != nil || h == nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	// What the home has of the agent is from before it moved away: a question that waited then may be answered now.
	if err := h.Forget(ctx, agent); err != nil {
		return err
	}
	if err := h.SaveUsage(ctx, used); err != nil {
		return err
	}
	for _, a := range asked {
		if err := h.PutApproval(ctx, a, "", nil); err != nil && !errors.Is(err, store.ErrMoved) {
			return err
		}
	}
	for _, q := range questions {
		if err := h.PutQuestion(ctx, q, ""); err != nil && !errors.Is(err, store.ErrMoved) {
			return err
		}
	}
	if err := addPins(ctx, h, pins); err != nil {
		return err
	}
	if err := addChannels(ctx, h, cursors, pairings); err != nil {
		return err
	}
	to, err := h.ExecPolicy(ctx)
	if err != nil {
		return err
	}
	return moveRules(agent, from, to, func(p store.ExecPolicy) error { return h.PutExecPolicy(ctx, p) })
}

// addPins adds the pins that a home does not have.
func addPins(ctx context.Context, h store.Pins, pins []store.Pin) error {
	for len(pins) > 0 {
		n := slices.IndexFunc(pins, func(p store.Pin) bool { return p.Server != pins[0].Server })
		if n < 0 {
			n = len(pins)
		}
		if err := h.ChangePins(ctx, pins[0].Server, func(have []store.Pin) ([]store.Pin, error) {
			for _, p := range pins[:n] {
				if !slices.ContainsFunc(have, func(h store.Pin) bool { return h.Tool == p.Tool }) {
					have = append(have, p)
				}
			}
			return have, nil
		}); err != nil {
			return err
		}
		pins = pins[n:]
	}
	return nil
}

// addChannels adds the cursors and pairings that a home does not have.
func addChannels(ctx context.Context, h store.Channels, cursors []store.Cursor, pairings []store.Pairing) error {
	for _, c := range cursors {
		have, err := h.Cursor(ctx, c.Account, c.Identity, c.Name)
		if err == nil && have == "" {
			err = h.PutCursor(ctx, c, nil)
		}
		if err != nil {
			return err
		}
	}
	if len(pairings) == 0 {
		return nil
	}
	return h.ChangePairings(ctx, "", nil, func(have []store.Pairing) ([]store.Pairing, error) {
		known := map[[2]string]bool{}
		for _, p := range have {
			known[[2]string{p.Account, p.Peer}] = true
		}
		for _, p := range pairings {
			if !known[[2]string{p.Account, p.Peer}] {
				have = append(have, p)
			}
		}
		return have, nil
	})
}
