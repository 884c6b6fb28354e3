package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/theclaw/agents/proofs/standin/option"
)

// dispatch starts the handler of each subscription that has something to read.
func dispatch(o option.Set, _ io.Reader, _ io.Writer) error {
	t, err := open(o)
	if err != nil {
		return err
	}
	defer t.close()
	t.rotate()
	subs, err := t.subscriptions()
	if err != nil {
		return err
	}
	for _, s := range subs {
		unread, err := t.events(s.acked, 1, or(s.filter, ""))
		if err != nil {
			return err // the subscriptions after it are not reached
		}
		if len(unread) == 0 {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(t.dir, "run", s.consumer+".lock"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, os.ErrExist) {
			t.log("INFO", "dispatch: consumer=%s skipped (lock held)", s.consumer)
			continue
		}
		if err != nil {
			return err
		}
		_, err = lock.WriteString(strconv.Itoa(os.Getpid()))
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
		handler := exec.Command("/bin/sh", "-c", s.handler)
		handler.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := handler.Start(); err != nil {
			return err
		}
		t.log("INFO", "dispatch: consumer=%s spawned handler_cmd=%s", s.consumer, quote(s.handler))
	}
	return nil
}
