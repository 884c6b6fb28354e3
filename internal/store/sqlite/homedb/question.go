package homedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/store"
)

const questionColumns = "id, agent, thread, key, text, options, allow_text, peer, after, state, answer, by, requested, expires, ended"

var _ store.Questions = (*DB)(nil)

// PutQuestion implements store.Questions.
func (d *DB) PutQuestion(ctx context.Context, q store.Question, was string) error {
	if err := d.putQuestion(ctx, q, was); err != nil {
		return fmt.Errorf("save question: %w", err)
	}
	return nil
}

func (d *DB) putQuestion(ctx context.Context, q store.Question, was string) error {
	options, err := store.EncodeOptions(q.Options)
	if err != nil {
		return err
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "DELETE FROM question WHERE CASE WHEN ended > 0 THEN ended ELSE expires END < ?", time.Now().Add(-store.QuestionsKept).UnixMilli()); err != nil {
		return err
	}
	var res sql.Result
	if was == "" {
		res, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO question("+questionColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			q.ID, q.Agent, q.Thread, q.Key, q.Text, options, q.AllowText, q.Peer, q.After, q.State, q.Answer, q.By,
			store.Millis(q.Requested), store.Millis(q.Expires), store.Millis(q.Ended))
	} else {
		res, err = tx.ExecContext(ctx, "UPDATE question SET state = ?, answer = ?, by = ?, ended = ? WHERE id = ? AND state = ?",
			q.State, q.Answer, q.By, store.Millis(q.Ended), q.ID, was)
	}
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(store.ErrMoved, err)
	}
	return tx.Commit()
}

// Question implements store.Questions.
func (d *DB) Question(ctx context.Context, id, agent, key string) (store.Question, bool, error) {
	q, err := scanQuestion(d.db.QueryRowContext(ctx, "SELECT "+questionColumns+" FROM question WHERE id = ? OR (? = '' AND agent = ? AND key = ?)", id, id, agent, key).Scan)
	return found(q, err)
}

// Questions implements store.Questions.
func (d *DB) Questions(ctx context.Context, after, agent, state string, limit int) ([]store.Question, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT "+questionColumns+" FROM question WHERE id > ? AND (? = '' OR agent = ?) AND (? = '' OR state = ?) ORDER BY id LIMIT ?",
		after, agent, agent, state, state, limit)
	if err != nil {
		return nil, fmt.Errorf("load questions: %w", err)
	}
	return collect(rows, scanQuestion)
}

func scanQuestion(scan func(...any) error) (store.Question, error) {
	var q store.Question
	var options string
	var requested, expires, ended int64
	err := scan(&q.ID, &q.Agent, &q.Thread, &q.Key, &q.Text, &options, &q.AllowText, &q.Peer, &q.After, &q.State, &q.Answer, &q.By, &requested, &expires, &ended)
	if err == nil {
		q.Options, err = store.DecodeOptions(options)
	}
	if err != nil {
		return q, fmt.Errorf("load question: %w", err)
	}
	q.Requested, q.Expires, q.Ended = store.FromMillis(requested), store.FromMillis(expires), store.FromMillis(ended)
	return q, nil
}
