package home

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// QuestionColumns are those that ScanQuestion reads.
const QuestionColumns = "id, agent_id, thread, key, text, options, allow_text, peer, after_id, state, answer, answered_by, requested, expires, ended"

var _ store.Questions = (*DB)(nil)

// PutQuestion implements store.Questions.
func (d *DB) PutQuestion(ctx context.Context, q store.Question, was string) error {
	err := d.putQuestion(ctx, q, was)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrMoved):
		return fmt.Errorf("save question: %w", err)
	}
	return fmt.Errorf("save question: %w", unit.Problem(err))
}

func (d *DB) putQuestion(ctx context.Context, q store.Question, was string) error {
	options, err := store.EncodeOptions(q.Options)
	if err != nil {
		return err
	}
	if was != "" {
		tag, err := d.pool.Exec(ctx, "UPDATE question SET state = $3, answer = $4, answered_by = $5, ended = $6 WHERE agent_id = $1 AND id = $2 AND state = $7",
			q.Agent, q.ID, q.State, unit.Stored(q.Answer), q.By, store.Millis(q.Ended), was)
		if err == nil && tag.RowsAffected() == 0 {
			err = store.ErrMoved
		}
		return err
	}
	b := &pgx.Batch{}
	b.Queue("DELETE FROM question WHERE agent_id = $1 AND CASE WHEN ended > 0 THEN ended ELSE expires END < $2", q.Agent, time.Now().Add(-store.QuestionsKept).UnixMilli())
	b.Queue("INSERT INTO question("+QuestionColumns+") VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING RETURNING 1",
		q.ID, q.Agent, unit.Stored(q.Thread), q.Key, unit.Stored(q.Text), unit.Stored(options), q.AllowText, unit.Stored(q.Peer), q.After, q.State, unit.Stored(q.Answer), q.By,
		store.Millis(q.Requested), store.Millis(q.Expires), store.Millis(q.Ended)).
		QueryRow(func(row pgx.Row) error {
			var one int
			err := row.Scan(&one)
			if errors.Is(err, pgx.ErrNoRows) {
				return store.ErrMoved
			}
			return err
		})
	return d.pool.SendBatch(ctx, b).Close()
}

// Question implements store.Questions.
func (d *DB) Question(ctx context.Context, id, agent, key string) (store.Question, bool, error) {
	where, args := "id = $1", []any{id}
	if id == "" {
		where, args = "agent_id = $1 AND key = $2", []any{agent, key}
	}
	all, err := d.readQuestions(ctx, where, args...)
	if err != nil || len(all) == 0 {
		return store.Question{}, false, err
	}
	return all[0], true, nil
}

// Questions implements store.Questions.
func (d *DB) Questions(ctx context.Context, after, agent, state string, limit int) ([]store.Question, error) {
	return d.readQuestions(ctx, "id > $1 AND ($2 = '' OR agent_id = $2) AND ($3 = '' OR state = $3) ORDER BY id LIMIT $4", after, agent, state, limit)
}

func (d *DB) readQuestions(ctx context.Context, where string, args ...any) ([]store.Question, error) {
	rows, err := d.pool.Query(ctx, "SELECT "+QuestionColumns+" FROM question WHERE "+where, args...)
	if err == nil {
		var out []store.Question
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Question, error) { return ScanQuestion(row.Scan) })
		if err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("load questions: %w", unit.Problem(err))
}

// ScanQuestion reads a row of QuestionColumns.
func ScanQuestion(scan func(...any) error) (store.Question, error) {
	var q store.Question
	var options string
	var requested, expires, ended int64
	dest := []any{&q.ID, &q.Agent, &q.Thread, &q.Key, &q.Text, &options, &q.AllowText, &q.Peer, &q.After, &q.State, &q.Answer, &q.By, &requested, &expires, &ended}
	if err := scan(dest...); err != nil {
		return q, err
	}
	if err := unit.Restore(dest); err != nil {
		return q, err
	}
	q.Requested, q.Expires, q.Ended = store.FromMillis(requested), store.FromMillis(expires), store.FromMillis(ended)
	var err error
	q.Options, err = store.DecodeOptions(options)
	return q, err
}
