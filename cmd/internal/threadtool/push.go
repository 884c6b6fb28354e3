package threadtool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool/access"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/notifier"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Limits of a batch: a line is an event as JSON, which may need six bytes for one.
const (
	maxLine  = 7 * thread.MaxEvent
	maxBatch = 64 << 20
)

type pushing struct {
	target
	source, kind, subtype, content string
	batch                          bool
}

func pushCommand(e *command.Env) *cobra.Command {
	var p pushing
	c := &cobra.Command{
		Use:   "push",
		Short: "Append an event, or a batch, and schedule the dispatch",
		Long: `Append an event to a thread. Exit code 0 means that the event is on disk. Nothing is
printed. With --batch each line of standard input is an event, an object with source,
type, subtype and content; all of them are stored in one transaction, or none.

If a notifier is installed it is asked to dispatch the thread.`,
		Example: `  thread push --thread ./t --source external:tui:main:dm:bob:bob --type message --content '{"text":"hi"}'
  thread push --thread ./t --source self --type record --subtype decision --content keep
  thread push --thread ./t --batch < events.ndjson`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			events, err := p.events(c, e)
			if err != nil {
				return err
			}
			return p.run(c, e, events)
		},
	}
	p.flag(c)
	f := c.Flags()
	command.TextFlag(f, &p.source, "source", command.AnySource, "address of the sender of the event")
	command.TextFlag(f, &p.kind, "type", command.EventType, "type of the event: message or record")
	command.TextFlag(f, &p.subtype, "subtype", command.AnySubtype, "subtype of the event")
	command.TextFlag(f, &p.content, "content", command.Content, "content of the event")
	f.BoolVar(&p.batch, "batch", false, "read events from standard input, one JSON object a line")
	return c
}

// events judges the command line and reads what is to be pushed.
func (p *pushing) events(c *cobra.Command, e *command.Env) ([]store.NewEvent, error) {
	switch {
	case p.path == "":
		return nil, command.Usage(c, "--thread is missing")
	case p.batch:
		for _, name := range []string{"source", "type", "subtype", "content"} {
			if c.Flags().Changed(name) {
				return nil, command.Usage(c, "--batch and --%s exclude each other", name)
			}
		}
		return readBatch(c, e.In)
	case p.source == "":
		return nil, command.Usage(c, "--source is missing")
	case p.kind == "":
		return nil, command.Usage(c, "--type is missing")
	case !c.Flags().Changed("content"):
		return nil, command.Usage(c, "--content is missing: give it, or --batch to read events from standard input")
	}
	n := store.NewEvent{Source: p.source, Type: p.kind, Content: p.content}
	if p.subtype != "" {
		n.Subtype = &p.subtype
	}
	if problem := wrong(n); problem != "" {
		return nil, command.Usage(c, "%s", problem)
	}
	return []store.NewEvent{n}, nil
}

// wrong says why an event cannot be stored, or nothing.
func wrong(n store.NewEvent) string {
	switch {
	case n.Type != thread.TypeMessage && n.Type != thread.TypeRecord:
		return fmt.Sprintf("%.80q is no type of event: use message or record", n.Type)
	case !utf8.ValidString(n.Content), !utf8.ValidString(n.Source), n.Subtype != nil && !utf8.ValidString(*n.Subtype):
		return "the event is not valid UTF-8"
	case len(n.Content) > thread.MaxEvent:
		return fmt.Sprintf("the content has %d bytes, more than the limit of %d", len(n.Content), thread.MaxEvent)
	}
	return ""
}

func readBatch(c *cobra.Command, in io.Reader) ([]store.NewEvent, error) {
	var events []store.NewEvent
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, maxLine)
	size, at := 0, 0
	for sc.Scan() {
		at++
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		n, problem := parseLine(line)
		if problem == "" {
			problem = wrong(n)
		}
		if size += len(line); size > maxBatch {
			problem = fmt.Sprintf("the batch has more than %d bytes: push it in smaller ones", maxBatch)
		}
		if problem != "" {
			return nil, fault.Usage(fmt.Sprintf("line %d: %s", at, problem), "nothing was stored; "+"see '"+c.CommandPath()+" --help'")
		}
		events = append(events, n)
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return nil, fault.Usage(fmt.Sprintf("line %d has more than %d bytes", at+1, maxLine), "nothing was stored; put large content into a file and push its name")
	}
	if sc.Err() != nil {
		return nil, fmt.Errorf("read the batch: %w", sc.Err())
	}
	return events, nil
}

// parseLine reads one event as the tool does: a field that is missing is empty.
func parseLine(line []byte) (n store.NewEvent, problem string) {
	if !utf8.Valid(line) {
		return n, "it is not valid UTF-8"
	}
	var fields map[string]json.RawMessage // a struct would take Content for content
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return n, "it is no JSON object"
	}
	n.Source, n.Type, n.Content = text(fields["source"]), text(fields["type"]), text(fields["content"])
	if s := text(fields["subtype"]); s != "" {
		n.Subtype = &s
	}
	return n, ""
}

// text is a JSON string's text; any other value stays JSON.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

func (p *pushing) run(c *cobra.Command, e *command.Env, events []store.NewEvent) error {
	var dir string
	err := p.with(c, e, func(d access.Conn, at access.Place) error {
		dir = at.Dir
		if len(events) == 0 {
			return nil
		}
		ids, err := d.Push(c.Context(), events)
		if err != nil {
			return err
		}
		log, last := logOf(at.Dir), events[len(events)-1]
		if p.batch {
			log.write(info, "push batch: count=%d last_id=%d", len(ids), ids[len(ids)-1])
		} else {
			log.write(info, "push: source=%s type=%s id=%d", last.Source, last.Type, ids[0])
		}
		return nil
	})
	if err == nil && len(events) > 0 {
		schedule(e, dir, events[len(events)-1].Source)
	}
	return err
}

// schedule asks the notifier, if there is one, to dispatch the thread. What is
// stored is stored: nothing here fails a push.
func schedule(e *command.Env, dir, author string) {
	home, ok := notifier.Home(e.Getenv)
	if !ok {
		return
	}
	err := notifier.Add(home, notifier.Task{Author: author, ID: notifier.TaskID(dir), Command: notifier.Command(dir), CreatedAt: time.Now()})
	if err != nil && !errors.Is(err, notifier.ErrQueued) {
		logOf(dir).write(warn, "notifier dispatch schedule failed (non-fatal): %v", err)
	}
}
