// Package limits measures what the machine can do: the time of a sync, of a round
// trip and of a process, and the rates of minimal programs that keep the same
// promises. Goals are ratios to these, measured in the same run and directory.
//
//	F     overwriting 4 KiB in a written file and waiting for the disk
//	P0    a byte there and back over a Unix socket, between two goroutines
//	X0    an empty Go program from its start to its end
//	A(w)  records/s of w writers that share syncs, one waiting for the next
//	U(w)  the same with two records one after the other: a message and its reply
//
// The rate of the bare engine is the transactions of a message on our own storage engine,
// with no call and no decision between them. The package compares nothing with a goal.
package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// record is what a message takes in a write-ahead log, about.
const record = 4096

// pieces of a prepared file, each of a record's size.
const pieces = 1024

// written makes a file whose blocks are all there, so that a sync of an overwrite
// has no other work.
func written(dir string) (*os.File, error) {
	f, err := os.Create(filepath.Join(dir, "limits"))
	if err != nil {
		return nil, err
	}
	block := make([]byte, record*64)
	for range pieces / 64 {
		if _, err := f.Write(block); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sync answers F, the median of n.
func Sync(dir string, n int) (time.Duration, error) {
	f, err := written(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	block := make([]byte, record)
	return median(n, func(i int) error {
		if _, err := f.WriteAt(block, int64(i%pieces)*record); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	})
}

// PingPong answers P0, the median of n.
func PingPong(dir string, n int) (time.Duration, error) {
	path := filepath.Join(dir, "limits.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c) // ends with the connection
	})
	c, err := net.Dial("unix", path)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, 1)
	return median(n, func(int) error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	})
}

// Empty builds the least Go program there is, for X0.
func Empty(ctx context.Context, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-o", program, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build an empty program: %w\n%s", err, out)
	}
	return program, nil
}

// Commits answers how many units/s w writers commit, n each, when whatever waits
// shares one write and one sync: A(w) with one record to a unit, U(w) with two.
func Commits(dir string, w, n, records int) (float64, error) {
	f, err := written(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	queue := make(chan chan error, w)
	var writer, writers sync.WaitGroup
	writer.Go(func() {
		at := 0
		var waiting []chan error
		for first := range queue {
			waiting = append(waiting[:0], first)
			for len(queue) > 0 {
				waiting = append(waiting, <-queue)
			}
			if at+len(waiting) > pieces {
				at = 0
			}
			_, err := f.WriteAt(make([]byte, len(waiting)*record), int64(at)*record)
			if err == nil {
				err = syscall.Fdatasync(int(f.Fd()))
			}
			at += len(waiting)
			for _, c := range waiting {
				c <- err
			}
		}
	})
	errs := make([]error, w)
	began := time.Now()
	for i := range w {
		writers.Go(func() {
			done := make(chan error, 1)
			for range n * records {
				queue <- done
				if errs[i] = <-done; errs[i] != nil {
					return
				}
			}
		})
	}
	writers.Wait()
	took := time.Since(began)
	close(queue)
	writer.Wait()
	return float64(w*n) / took.Seconds(), errors.Join(errs...)
}

// median times n calls of fn.
func median(n int, fn func(i int) error) (time.Duration, error) {
	all := make([]time.Duration, n)
	for i := range all {
		began := time.Now()
		if err := fn(i); err != nil {
			return 0, err
		}
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[n/2], nil
}
