// Package drill contains what the proofs of this tree share: their size and
// their seed from the environment, their one line of figures, and the Scenario of
// messages that proofs of the engine run.
//
// A proof is a Go test that is small by default, grows by environment variables,
// prints one line of figures with its seed, and fails on any violation. It must
// also fail when it has shown nothing, because a drill that never hits anything
// prints no error either. Nothing here decides what is right; each proof does.
package drill

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Size is a number from the environment, or def.
func Size(t testing.TB, name string, def int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Span is a duration from the environment, or def.
func Span(t testing.TB, name string, def time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// Seed is SEED of the environment or a new one, and a source of chance made of
// it. Print it with the figures.
func Seed(t testing.TB) (uint64, *rand.Rand) {
	t.Helper()
	seed := uint64(Size(t, "SEED", int(rand.Uint32())))
	return seed, rand.New(rand.NewPCG(seed, 0))
}

// Line prints the figures of a proof.
func Line(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// RAM is a directory in memory where there is one: a proof that does not cut the
// power need not wait for a disk.
func RAM(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "proof")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
