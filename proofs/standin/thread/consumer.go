package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/theclaw/agents/proofs/standin/option"
)

func peek(o option.Set, _ io.Reader, out io.Writer) error {
	after, err := number(o, "last-event-id", 0, 0)
	if err != nil {
		return err
	}
	limit, err := number(o, "limit", 1, 100)
	if err != nil {
		return err
	}
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	events, err := t.events(after, limit, o.Get("filter"))
	return printEvents(out, events, err)
}

// pop moves the progress to where it is told, back or beyond, and then reads.
func pop(o option.Set, _ io.Reader, out io.Writer) error {
	after, err := number(o, "last-event-id", 0, 0)
	if err != nil {
		return err
	}
	limit, err := number(o, "limit", 1, 100)
	if err != nil {
		return err
	}
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	s, err := t.find(o.Get("consumer"))
	if err != nil {
		return err
	}
	if s == nil {
		return logic("consumer '%s' has no subscription - run thread subscribe first", o.Get("consumer"))
	}
	if err := t.exec(`INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at) VALUES (?, ?, ?)
		ON CONFLICT(consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id, updated_at = excluded.updated_at`, s.consumer, after, now()); err != nil {
		return err
	}
	filter := ""
	if s.filter != nil {
		filter = *s.filter
	}
	events, err := t.events(after, limit, filter)
	return printEvents(out, events, err)
}

func subscribe(o option.Set, _ io.Reader, out io.Writer) error {
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	consumer := o.Get("consumer")
	if s, err := t.find(consumer); err != nil || s != nil {
		if err != nil {
			return err
		}
		return logic("consumer '%s' is subscribed already - run thread unsubscribe first", consumer)
	}
	var filter any
	if f := o.Get("filter"); f != "" {
		filter = f
	}
	if err := t.exec("INSERT INTO subscriptions (consumer_id, handler_cmd, filter) VALUES (?, ?, ?)", consumer, o.Get("handler"), filter); err != nil {
		return err
	}
	fmt.Fprintf(out, "Subscribed consumer '%s'\n", consumer)
	return nil
}

func unsubscribe(o option.Set, _ io.Reader, out io.Writer) error {
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	consumer := o.Get("consumer")
	s, err := t.find(consumer)
	if err != nil {
		return err
	}
	if s == nil {
		return logic("consumer '%s' has no subscription - look at the consumer id", consumer)
	}
	if err := t.exec("DELETE FROM subscriptions WHERE consumer_id = ?", consumer); err != nil {
		return err
	}
	fmt.Fprintf(out, "Unsubscribed consumer '%s'\n", consumer)
	return nil
}

func info(o option.Set, _ io.Reader, out io.Writer) error {
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	var count int64
	if err := t.db.QueryRowContext(background, "SELECT COUNT(*) FROM events").Scan(&count); err != nil {
		return plain(err)
	}
	subs, err := t.subscriptions()
	if err != nil {
		return err
	}
	if !o.Has("json") {
		fmt.Fprintf(out, "Thread: %s\nEvents: %d\nSubscriptions: %d\n", t.dir, count, len(subs))
		for _, s := range subs {
			fmt.Fprintf(out, "  - %s\n    handler: %s\n    filter:  %s\n    last_acked_id: %d\n    updated_at: %s\n",
				s.consumer, s.handler, or(s.filter, "(none)"), s.acked, or(s.updatedAt, "(never)"))
		}
		return nil
	}
	var b strings.Builder
	b.WriteString("{\n  \"event_count\": " + strconv.FormatInt(count, 10) + ",\n  \"subscriptions\": [")
	for i, s := range subs {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n    {\n      \"consumer_id\": %s,\n      \"handler_cmd\": %s,\n      \"filter\": %s,\n      \"last_acked_id\": %d,\n      \"updated_at\": %s\n    }",
			quote(s.consumer), quote(s.handler), orNull(s.filter), s.acked, orNull(s.updatedAt))
	}
	if len(subs) > 0 {
		b.WriteString("\n  ")
	}
	fmt.Fprintln(out, b.String()+"]\n}")
	return nil
}

func or(s *string, other string) string {
	if s == nil {
		return other
	}
	return *s
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return quote(*s)
}
