//go:build proof

package inject_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// commands are command lines of agentctl, or of the program thread, in which ID stands for a hostile text. No
// shell is between: an argument is what a shell would have made of it already.
var commands = [][]string{
	{"init", "ID"},
	{"start", "ID"},
	{"stop", "--", "ID"},
	{"status", "--", "ID"},
	{"events", "a1", "--", "ID"},
	{"send", "a1", "hello", "--source", "ID"},
	{"agent", "--agent", "a1", "--message", "ID", "--thread", "ID"},
	{"explain", "a1", "--", "ID"},
	{"export", "a1", "-", "--peer", "ID"},
	{"erase", "a1", "--peer", "ID"},
	{"context", "show", "a1", "--", "ID"},
	{"memory", "show", "a1", "--", "ID"},
	{"config", "set", "a1", "--", "ID", "x"},
	{"config", "set", "a1", "pai.model", "--", "ID"},
	{"config", "get", "a1", "--", "ID"},
	{"file", "get", "a1", "--", "ID"},
	{"file", "put", "a1", "--", "ID"},
	{"run", "wait", "a1", "--", "ID"},
	{"dlq", "retry", "a1", "--", "ID"},
	{"providers", "test", "--", "ID"},
	{"approvals", "approve", "--", "ID"},
	{"thread", "push", "--thread", "HOME/agents/a1/ID", "--source", "external:t:m:dm:p1:p1", "--type", "message", "--content", "x"},
	{"thread", "push", "--thread", "INBOX", "--source", "ID", "--type", "ID", "--subtype", "ID", "--content", "ID"},
	{"thread", "push", "--thread", "INBOX", "--batch"},
	{"thread", "subscribe", "--thread", "INBOX", "--consumer", "ID", "--handler", "ID", "--filter", "ID"},
	{"thread", "pop", "--thread", "INBOX", "--consumer", "ID", "--last-event-id", "0"},
	{"thread", "unsubscribe", "--thread", "INBOX", "--consumer", "ID"},
	{"thread", "peek", "--thread", "INBOX", "--last-event-id", "0", "--filter", "ID"},
}

// message is an event of a channel whose every id is hostile, and which says that
// its answer goes to yet another place.
func message(id string) (source, content string) {
	b, err := json.Marshal(map[string]any{
		"id": id, "channel_id": id, "peer_id": id, "peer_name": id, "session_id": id, "text": id, "attachments": []string{id},
		"reply_context": map[string]any{"channel_type": id, "channel_id": id, "peer_id": id, "session_id": id, "source_agent_id": id, "thread_id": id},
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return fmt.Sprintf("external:telegram:%s:dm:%s:%s", id, id, id), string(b)
}

// run starts a program of the folder bin once for each command line with each id that
// an argument of a program can hold.
func (c *count) run(t testing.TB, bin, home, dir string, env, ids []string) {
	t.Helper()
	for _, id := range ids {
		if strings.Contains(id, "\x00") {
			continue
		}
		for _, line := range commands {
			fill := strings.NewReplacer("ID", id, "HOME", home, "INBOX", filepath.Join(home, "agents/a1/inbox"))
			argv := []string{"agentctl"}
			if line[0] == "thread" {
				argv = nil
			}
			for _, word := range line {
				argv = append(argv, fill.Replace(word))
			}
			c.command(t, bin, dir, env, argv, id)
		}
	}
}

func (c *count) command(t testing.TB, bin, dir string, env, argv []string, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, argv[0]), argv[1:]...)
	cmd.Env, cmd.Dir = env, dir
	source, content := message(id)
	event, err := json.Marshal(map[string]string{"source": source, "type": "message", "content": content})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(append(event, '\n'))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	c.commands++
	c.calls++
	what := strings.Join(argv[:min(3, len(argv))], " ")
	var exit *exec.ExitError
	switch {
	case err == nil:
		c.accepted++
	case errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2):
		c.refused++
	default:
		c.refused++
		c.fault(t, &c.internal, "%.60q with %.80q: %v, %.500s", what, id, err, errs.String())
	}
	switch text := errs.String(); {
	case strings.Contains(text, "goroutine ") || strings.Contains(text, "panic:") || engine.MatchString(text) || !utf8.ValidString(text) && utf8.ValidString(id):
		c.fault(t, &c.internal, "%.60q with %.80q: %.500q", what, id, text)
	case control.MatchString(text):
		c.fault(t, &c.internal, "%.60q with %.80q: the error holds control characters: %.300q", what, id, text)
	}
	if strings.Contains(out.String()+errs.String(), c.secret) {
		c.fault(t, &c.outside, "%.60q with %.80q shows a file from outside", what, id)
	}
}
