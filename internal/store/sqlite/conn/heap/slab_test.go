package heap

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"modernc.org/libc"
)

// Each number of bytes has the smallest size that it fits into, and the sizes rise with the
// numbers of the classes.
func TestSizes(t *testing.T) {
	last := map[int]int{} // size by class
	for n := 1; n <= most; n++ {
		c, size := class(n)
		if c < 0 || c >= classes || size < n || size-n > max(grain-1, n/16) || size%grain != 0 {
			t.Fatalf("%d bytes: class %d of %d bytes", n, c, size)
		}
		if was, ok := last[c]; ok && was != size {
			t.Fatalf("class %d has %d bytes and %d", c, was, size)
		}
		if below, ok := last[c-1]; c > 0 && (!ok || below >= n) {
			t.Fatalf("%d bytes are in class %d, and class %d has %d bytes", n, c, c-1, below)
		}
		last[c] = size
	}
	if len(last) != classes {
		t.Errorf("%d classes are used, want %d", len(last), classes)
	}
}

// Pieces of all sizes come and go: none overlaps another, each has what was written into it,
// and when all are gone everything goes back to the system.
func TestPieces(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	before := InUse()
	type piece struct {
		p    uintptr
		want []byte
	}
	var pieces []piece
	random := func() int {
		return 1 + r.IntN([]int{64, 512, 4096, most, 4 * slabBytes}[r.IntN(5)])
	}
	fill := func(p uintptr, n int) piece {
		b := bytes.Repeat([]byte{byte(r.Uint32())}, n)
		copy(libc.GoBytes(p, n), b)
		return piece{p, b}
	}
	check := func(one piece) {
		t.Helper()
		if p := one.p; p%grain != 0 || int(size(nil, p)) < len(one.want) || !bytes.Equal(libc.GoBytes(p, len(one.want)), one.want) {
			t.Fatalf("the piece of %d bytes at %x changed", len(one.want), p)
		}
	}
	for round := range 40_000 {
		grow := round%20_000 < 10_000
		switch k := r.IntN(10); {
		case len(pieces) == 0 || grow && k < 6 || !grow && k < 3:
			n := random()
			pieces = append(pieces, fill(malloc(nil, int32(n)), n))
		case k == 9:
			i, n := r.IntN(len(pieces)), random()
			one := pieces[i]
			check(one)
			p := realloc(nil, one.p, int32(n))
			check(piece{p, one.want[:min(n, len(one.want))]})
			pieces[i] = fill(p, n)
		default:
			i := r.IntN(len(pieces))
			check(pieces[i])
			free(nil, pieces[i].p)
			pieces[i] = pieces[len(pieces)-1]
			pieces = pieces[:len(pieces)-1]
		}
	}
	for _, one := range pieces {
		check(one)
		free(nil, one.p)
	}
	if got := InUse(); got != before {
		t.Errorf("%d bytes are in use, want %d", got, before)
	}
	if err := Trim(); err != nil {
		t.Fatal(err)
	}
	if mapped > before+classes*slabBytes {
		t.Errorf("%d bytes are mapped for %d in use", mapped, before)
	}
}

// Many pieces of the size of a page take little more than they ask for.
func TestPagesArePacked(t *testing.T) {
	const page, n = 1296, 10_000
	var pieces []uintptr
	if err := Trim(); err != nil {
		t.Fatal(err)
	}
	before := mapped
	for range n {
		pieces = append(pieces, malloc(nil, page))
	}
	if took := mapped - before; took > page*n*17/16+batch*slabBytes {
		t.Errorf("%d pages of %d bytes take %d", n, page, took)
	}
	for _, p := range pieces {
		free(nil, p)
	}
	if err := Trim(); err != nil {
		t.Fatal(err)
	}
	if mapped != before {
		t.Errorf("%d bytes are mapped, want %d", mapped, before)
	}
}
