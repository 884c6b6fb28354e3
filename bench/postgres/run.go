package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// run is what clusters and processes want of a test that starts them: somebody who
// ends them, and to whom they say that they cannot go on.
type run struct {
	testing.TB // its private method; whatever is called of it stands below

	ctx    context.Context //nolint:containedctx // as testing.TB has it
	ends   []func()
	failed error
}

// gaveUp is the panic that ends a run.
type gaveUp struct{ error }

// perform calls do and then ends what it has started.
func perform(ctx context.Context, do func(*run)) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{ctx: ctx}
	defer func() {
		p := recover()
		for len(r.ends) > 0 {
			end := r.ends[len(r.ends)-1]
			r.ends = r.ends[:len(r.ends)-1]
			end()
		}
		if end, ok := p.(gaveUp); ok {
			p, r.failed = nil, errors.Join(r.failed, end.error)
		}
		if p != nil {
			panic(p)
		}
		err = r.failed
	}()
	do(r)
	return nil
}

// part is perform for a piece of the run; what stops it stops the whole.
func (r *run) part(do func(*run)) { r.check(perform(r.ctx, do)) }

func (r *run) check(err error) {
	if err != nil {
		panic(gaveUp{err})
	}
}

func (r *run) Helper()                        {}
func (r *run) Context() context.Context       { return r.ctx }
func (r *run) Cleanup(end func())             { r.ends = append(r.ends, end) }
func (r *run) Fatal(a ...any)                 { r.check(errors.New(fmt.Sprint(a...))) }
func (r *run) Fatalf(format string, a ...any) { r.check(fmt.Errorf(format, a...)) }
func (r *run) Skip(a ...any)                  { r.Fatal(a...) }
func (r *run) Error(a ...any)                 { r.failed = errors.Join(r.failed, errors.New(fmt.Sprint(a...))) }

func (r *run) Errorf(format string, a ...any) {
	r.failed = errors.Join(r.failed, fmt.Errorf(format, a...))
}

// TempDir makes a directory that ends with the run.
func (r *run) TempDir() string {
	dir, err := os.MkdirTemp("", "theclaw-bench-")
	r.check(err)
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
