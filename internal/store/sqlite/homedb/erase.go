package homedb

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
)

// ErasePeer implements store.Approvals: of a peer there are approvals, questions and a pairing here. Their bytes
// are gone from the files when it returns, also when a killed one removed the rows.
func (d *DB) ErasePeer(ctx context.Context, agent string, s store.PeerRecords) error {
	var err error
	for _, table := range []string{"approval", "question"} {
		var ids []string
		if err == nil {
			ids, err = d.asked(ctx, table, agent, s)
		}
		for _, id := range ids {
			if err == nil {
				_, err = d.db.ExecContext(ctx, "DELETE FROM "+table+" WHERE id = ?", id)
			}
		}
	}
	for _, q := range []string{
		"DELETE FROM pairing WHERE account = ? AND peer = ? AND state <> 'blocked'",
		"UPDATE pairing SET name = '', code_key = '', messages = 0 WHERE account = ? AND peer = ?",
	} {
		if err == nil {
			_, err = d.db.ExecContext(ctx, q, s.Account, s.Peer)
		}
	}
	for _, q := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err == nil {
			_, err = d.db.ExecContext(ctx, q)
		}
	}
	if err != nil {
		return fmt.Errorf("forget questions of agent %s: %w", agent, err)
	}
	return nil
}

func (d *DB) asked(ctx context.Context, table, agent string, s store.PeerRecords) (ids []string, err error) {
	rows, err := d.db.QueryContext(ctx, "SELECT id, thread, key FROM "+table+" WHERE agent = ?", agent)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, thread, key string
		if err := rows.Scan(&id, &thread, &key); err != nil {
			return nil, err
		}
		if s.Asked(thread, key) {
			ids = append(ids, id)
		}
	}
	return ids, rows.Err()
}
