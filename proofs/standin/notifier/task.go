package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/proofs/standin/option"
)

// home is the notifier's directory.
type home string

func openHome() (home, error) {
	dir := os.Getenv("NOTIFIER_HOME")
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".local", "share", "notifier")
	}
	return home(dir), nil
}

func (h home) make() error {
	for _, d := range []string{"tasks/pending", "tasks/done", "tasks/error", "timers", "logs"} {
		if err := os.MkdirAll(filepath.Join(string(h), d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (h home) tasks(status string) string { return filepath.Join(string(h), "tasks", status) }

func (h home) file(status, author, id string) string {
	return h.tasks(status) + "/" + author + "-" + id + ".txt" // raw, as it is
}

// task is a task file that was read.
type task struct{ author, id, command, createdAt string }

// readTask reads the lines key=value; what is after a line break in a value is lost.
func readTask(b []byte) (task, error) {
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "="); ok && !strings.HasPrefix(key, "#") {
			fields[key] = value
		}
	}
	for _, must := range []string{"author", "task_id", "command", "created_at"} {
		if fields[must] == "" {
			return task{}, errors.New("Missing required field: " + must)
		}
	}
	return task{fields["author"], fields["task_id"], fields["command"], fields["created_at"]}, nil
}

func taskAdd(h home, o option.Set, in io.Reader, _, _ io.Writer) error {
	command := o.Get("command")
	if command == "" {
		command = o.Get("cmd")
	}
	if command == "" {
		first, err := bufio.NewReader(in).ReadString('\n')
		if command = strings.TrimSpace(first); command == "" {
			return refuse("Error: no command given (%v)", err)
		}
	}
	if err := h.make(); err != nil {
		return err
	}
	path := h.file("pending", o.Get("author"), o.Get("task-id"))
	if _, err := os.Stat(path); err == nil {
		return refuse("Error: task file already exists at %s\nSuggestion: use another --task-id", path)
	}
	text := fmt.Sprintf("author=%s\ntask_id=%s\ncommand=%s\n", o.Get("author"), o.Get("task-id"), command)
	if d := o.Get("description"); d != "" {
		text += "description=" + d + "\n"
	}
	text += "created_at=" + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") + "\n"
	return os.WriteFile(path, []byte(text), 0o644) // in place: who looks now sees half of it
}

func taskRemove(h home, o option.Set, _ io.Reader, _, _ io.Writer) error {
	state := "pending"
	if o.Has("status") {
		state = o.Get("status")
	}
	path := h.file(state, o.Get("author"), o.Get("task-id"))
	if err := os.Remove(path); err != nil {
		return refuse("Error: task file not found at %s\nSuggestion: look at the author and the task id", path)
	}
	return nil
}

func taskList(h home, o option.Set, _ io.Reader, out, _ io.Writer) error {
	states := []string{"pending"}
	switch {
	case o.Has("all"):
		states = []string{"pending", "done", "error"}
	case o.Has("status"):
		states = []string{o.Get("status")}
		if !slices.Contains([]string{"pending", "done", "error"}, states[0]) {
			return refuse("Error: Invalid status: %s\nSuggestion: Valid values are: pending, done, error", states[0])
		}
	}
	rows := []string{}
	for _, state := range states {
		entries, _ := os.ReadDir(h.tasks(state))
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(h.tasks(state), e.Name()))
			if err != nil {
				continue // it is on its way
			}
			t, err := readTask(b)
			if err != nil {
				continue
			}
			if !o.Has("json") {
				rows = append(rows, fmt.Sprintf("  author:      %s\n  task_id:     %s\n  created_at:  %s\n  command:     %s\n", t.author, t.id, t.createdAt, t.command))
				continue
			}
			row := `{"author":` + text(t.author) + `,"task_id":` + text(t.id) + `,"command":` + text(t.command) + `,"created_at":` + text(t.createdAt)
			if o.Has("all") {
				row += `,"status":` + text(state)
			}
			rows = append(rows, row+"}")
		}
	}
	switch {
	case o.Has("json"):
		fmt.Fprintln(out, "["+strings.Join(rows, ",")+"]")
	case len(rows) == 0:
		fmt.Fprintf(out, "No tasks found in %s.\n", states[0])
	default:
		fmt.Fprintln(out, strings.Join(rows, "\n"))
	}
	return nil
}

func text(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSpace(b.String())
}
