package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the tool's hash, for a short name
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/theclaw/agents/proofs/standin/option"
)

func push(o option.Set, in io.Reader, _ io.Writer) error {
	events := []event{{source: o.Get("source"), typ: o.Get("type"), content: o.Get("content")}}
	if o.Has("subtype") {
		events[0].subtype = new(o.Get("subtype"))
	}
	batch := o.Has("batch")
	if !batch {
		for _, name := range []string{"source", "type", "content"} {
			if !o.Has(name) || o.Get(name) == "" && name != "content" {
				return usage("--%s is required", name)
			}
		}
	}
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	if batch {
		if events, err = readBatch(in); err != nil || len(events) == 0 {
			return err
		}
	}
	if err := t.insert(events); err != nil {
		return err
	}
	t.rotate()
	for _, e := range events {
		t.mirror(e)
	}
	last := events[len(events)-1]
	t.schedule(last.source)
	if batch {
		t.log("INFO", "push batch: count=%d last_id=%d", len(events), last.id)
	} else {
		t.log("INFO", "push: source=%s type=%s id=%d", last.source, last.typ, last.id)
	}
	return nil
}

// readBatch reads one JSON object a line; what is missing is empty, and what is
// no text is made one in the way of that language.
func readBatch(in io.Reader) ([]event, error) {
	var out []event
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if b := bytes.TrimSpace(line); len(b) > 0 {
			var row map[string]json.RawMessage
			if jsonErr := json.Unmarshal(b, &row); jsonErr != nil {
				return nil, jsonErr
			}
			e := event{source: text(row["source"]), typ: text(row["type"]), content: text(row["content"])}
			if raw, ok := row["subtype"]; ok && string(raw) != "null" {
				e.subtype = new(text(raw))
			}
			out = append(out, e)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func text(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &s) == nil:
		return s
	case raw[0] == '{':
		return "[object Object]"
	}
	return string(raw)
}

func (t *thread) insert(events []event) error {
	tx, err := t.db.BeginTx(background, nil)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = tx.Rollback() }()
	for i := range events {
		e := &events[i]
		r, err := tx.ExecContext(background, "INSERT INTO events (source, type, subtype, content) VALUES (?, ?, ?, ?)", e.source, e.typ, e.subtype, e.content)
		if err != nil {
			return plain(err)
		}
		if e.id, err = r.LastInsertId(); err != nil {
			return err
		}
	}
	return plain(tx.Commit())
}

// mirror appends to events.jsonl, after the commit and with this process's clock.
func (t *thread) mirror(e event) {
	path := filepath.Join(t.dir, "events.jsonl")
	if b, err := os.ReadFile(path); err == nil && bytes.Count(b, []byte("\n")) > 10000 {
		_ = os.Rename(path, filepath.Join(t.dir, "events-"+fileStamp()+".jsonl"))
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	e.createdAt = now()
	fmt.Fprintln(f, e.line())
}

// schedule asks the notifier for a dispatch. Exit 1 passes for "queued already",
// whatever it meant, and nothing here makes the push fail.
func (t *thread) schedule(author string) {
	ctx, cancel := context.WithTimeout(background, 5*time.Second)
	defer cancel()
	//nolint:gosec // an argument vector, no shell
	err := exec.CommandContext(ctx, "notifier", "task", "add", "--author", author, "--task-id", taskID(t.dir), "--command", "thread dispatch --thread "+t.dir).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err == nil || ok && exit.ExitCode() == 1 {
		return
	}
	why := err.Error()
	if errors.Is(err, exec.ErrNotFound) {
		why = "spawn notifier ENOENT"
	}
	t.log("WARN", "notifier dispatch schedule failed (non-fatal): %s", why)
}

// taskID is the key under which the notifier knows a directory.
func taskID(dir string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(dir)) {
		if u < 128 && (u >= 'a' && u <= 'z' || u >= 'A' && u <= 'Z' || u >= '0' && u <= '9') {
			b.WriteByte(byte(u))
		} else {
			b.WriteByte('-')
		}
	}
	slug := b.String()
	if len(slug) <= 40 {
		return "dispatch-" + slug
	}
	sum := sha1.Sum([]byte(dir)) //nolint:gosec // as above
	return "dispatch-" + slug[:32] + "-" + hex.EncodeToString(sum[:])[:6]
}
