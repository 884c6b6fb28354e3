package notifier

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Errors of Add; compare with errors.Is.
var (
	// ErrQueued reports that the same task waits or runs already.
	ErrQueued = errors.New("the task is queued already")
	// ErrTask reports that a task cannot be written as lines of key=value.
	ErrTask = errors.New("the task cannot be written")
)

// Task is one command for the notifier to run.
type Task struct {
	Author    string // the requester; written as [Author] makes it
	ID        string
	Command   string // one line for `sh -c`
	CreatedAt time.Time
}

// text is the content of the task's file.
func (t Task) text() string {
	return "author=" + t.Author + "\ntask_id=" + t.ID + "\ncommand=" + t.Command +
		"\ncreated_at=" + t.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z") + "\n"
}

// maxName is the longest file name that Linux's file systems take.
const maxName = 255

// Author is author as it can stand in a file name and on a line: a `/` and
// control characters become `_`, an empty one is `_`. Two authors that become
// one share a pending task, which is enough for a dispatch: it looks at the
// whole thread.
func Author(author string) string {
	if author == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' || r == 0x7F {
			return '_'
		}
		return r
	}, author)
}

// named is t with an author that fits into the file name.
func named(t Task) (Task, string, error) {
	if t.ID == "" || strings.ContainsAny(t.ID, "/\r\n\x00") {
		return t, "", fmt.Errorf("task id %q: %w", t.ID, ErrTask)
	}
	if t.Command == "" || strings.ContainsAny(t.Command, "\r\n\x00") {
		return t, "", fmt.Errorf("a command is one line, %q is not: %w", t.Command, ErrTask)
	}
	t.Author = Author(t.Author)
	rest := "-" + t.ID + ".txt"
	if room := maxName - len(rest); len(t.Author) > room {
		sum := sha256.Sum256([]byte(t.Author))
		if room -= 9; room < 1 {
			return t, "", fmt.Errorf("task id of %d bytes: %w", len(t.ID), ErrTask)
		}
		t.Author = strings.ToValidUTF8(t.Author[:room], "") + "-" + hex.EncodeToString(sum[:4])
	}
	return t, t.Author + rest, nil
}

// Add puts a task into the notifier's directory, which is made when it is
// absent. Errors: ErrQueued, ErrTask, and those of the file system.
func Add(home string, t Task) error {
	t, name, err := named(t)
	if err != nil {
		return err
	}
	pending := filepath.Join(home, "tasks", "pending")
	if _, err := os.Lstat(filepath.Join(pending, name)); err == nil {
		return ErrQueued
	}
	tmp, err := os.CreateTemp(pending, ".task-*.tmp")
	if errors.Is(err, os.ErrNotExist) {
		if err := makeHome(home); err != nil {
			return fmt.Errorf("make the notifier's directory: %w", err)
		}
		tmp, err = os.CreateTemp(pending, ".task-*.tmp")
	}
	if err != nil {
		return fmt.Errorf("write task: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(t.text())
	if err == nil {
		err = tmp.Sync() // a name without content after a power cut is an error to the notifier
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("write task: %w", err)
	}
	// A link does not replace: of two that add the same task one fails.
	if err := os.Link(tmp.Name(), filepath.Join(pending, name)); errors.Is(err, os.ErrExist) {
		return ErrQueued
	} else if err != nil {
		return fmt.Errorf("name task: %w", err)
	}
	return nil
}

func makeHome(home string) error {
	for _, dir := range []string{"tasks/pending", "tasks/done", "tasks/error", "timers", "logs"} {
		if err := os.MkdirAll(filepath.Join(home, filepath.FromSlash(dir)), 0o700); err != nil {
			return err
		}
	}
	return nil
}
