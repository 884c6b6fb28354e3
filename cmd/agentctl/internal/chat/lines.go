package chat

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
)

// inputLine is one line of input, or the end of the input.
type inputLine struct {
	text string
	err  error // io.EOF, or why reading failed; text is valid with io.EOF
}

// jsonReply is the line that --json prints for one message.
type jsonReply struct {
	EventID int64   `json:"event_id"`
	RunID   string  `json:"run_id"`
	Fate    string  `json:"fate"`
	Reply   *string `json:"reply"`
}

// runLines holds the conversation where there is no terminal: each line of standard
// input is a message, and each reply is printed in order, with --json as one object a
// line. It sends one line, waits for the reply, and sends the next: an agent answers a
// conversation in order anyway, and a long input cannot fill its inbox. Standard output
// gets nothing but replies, without escape sequences. A message that failed is reported
// on standard error and does not stop the next one. A line that is exit or quit ends the
// conversation, except with --json, where programs write the lines.
func runLines(ctx context.Context, from *feed.Source) error {
	e := from.Env
	lines := make(chan inputLine)
	go readLines(ctx, e.In, lines)
	failed := false
	for {
		if e.Typed() && !e.Flags.JSON {
			fmt.Fprint(e.Err, "you: ")
		}
		var l inputLine
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l = <-lines:
		}
		if leaves(l.text) && !e.Flags.JSON {
			l.text, l.err = "", io.EOF
		}
		if strings.TrimSpace(l.text) != "" {
			err := exchange(ctx, from, l.text)
			switch {
			case err == nil:
			case ctx.Err() != nil, command.Unavailable(err), fault.Is(err, fault.AgentNotFound):
				return err
			default:
				e.Report(err)
				failed = true
			}
		}
		switch {
		case errors.Is(l.err, io.EOF) && failed:
			return &command.ReportedError{}
		case errors.Is(l.err, io.EOF):
			return nil
		case l.err != nil:
			return fmt.Errorf("read standard input: %w", l.err)
		}
	}
}

func exchange(ctx context.Context, from *feed.Source, text string) error {
	e, agent := from.Env, from.Agent
	id, _, err := message.Say(ctx, e, agent, from.Peer, from.Session, message.NewKey(), text)
	if err != nil {
		return err
	}
	t, err := message.Turn(ctx, e, agent, id, true, message.Note(e))
	if err != nil {
		return err
	}
	reply, ok, err := message.Reply(ctx, e, t)
	if err != nil {
		return err
	}
	if e.Flags.JSON {
		a := jsonReply{EventID: id, RunID: t.GetKey(), Fate: message.FateName(t.GetFate())}
		if ok {
			a.Reply = &reply
		}
		b, err := json.Marshal(a)
		if err == nil {
			_, err = fmt.Fprintf(e.Out, "%s\n", b)
		}
		return err
	}
	if !ok {
		e.Note("message %d has no reply of its own: %s", id, message.FateName(t.GetFate()))
		return nil
	}
	fmt.Fprintln(e.Out, screen.Text(e, reply))
	return nil
}

// readLines sends the lines of in without their line endings. Of a line longer than
// any message only the start is kept, which is still too long to be sent.
func readLines(ctx context.Context, in io.Reader, lines chan<- inputLine) {
	r := bufio.NewReaderSize(in, 64<<10)
	var b []byte
	for {
		part, more, err := r.ReadLine()
		if len(b) <= thread.MaxEvent {
			b = append(b, part...)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case lines <- inputLine{string(b), err}:
		}
		if err != nil {
			return
		}
		b = b[:0]
	}
}
