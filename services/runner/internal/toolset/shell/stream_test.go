package shell

import (
	"io"
	"strings"
	"testing"
)

// The end of an output keeps its offsets, and holds so much and no more.
func TestRecent(t *testing.T) {
	var o recent
	for range 10 * maxHeld / 16 {
		o.add([]byte("0123456789abcdef"))
	}
	if o.size() != 10*maxHeld || len(o.buf) > 2*maxHeld {
		t.Errorf("%d bytes of %d are held", len(o.buf), o.size())
	}
	for offset, want := range map[int64]struct {
		begin int64
		text  string
	}{
		10*maxHeld - 3: {10*maxHeld - 3, "def"},
		10 * maxHeld:   {10 * maxHeld, ""},
		1 << 50:        {10 * maxHeld, ""},
		0:              {9 * maxHeld, "01234"},
		-5:             {9 * maxHeld, "01234"},
	} {
		if b, begin := o.from(offset, 5); begin != want.begin || string(b) != want.text {
			t.Errorf("from %d: %q at %d, want %q at %d", offset, b, begin, want.text, want.begin)
		}
	}
	if got := string((&o).last(4)); got != "cdef" {
		t.Errorf("last: %q", got)
	}
	var empty recent
	if b, begin := empty.from(7, 5); len(b) != 0 || begin != 0 {
		t.Errorf("of nothing: %q at %d", b, begin)
	}
}

// What is written arrives in order; what is not read is bounded, and the end ends a wait.
func TestInput(t *testing.T) {
	in := newInput()
	if err := in.write("one "); err != nil {
		t.Fatal(err)
	}
	if err := in.write(strings.Repeat("x", maxHeld)); err == nil {
		t.Error("more than fits was taken")
	}
	if err := in.write("two"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(in, b); err != nil || string(b) != "one two" {
		t.Errorf("read %q %v", b, err)
	}
	ended := make(chan error)
	go func() {
		_, err := in.Read(b)
		ended <- err
	}()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("the wait ended with %v", err)
	}
	if err := in.write("x"); err == nil {
		t.Error("written after the end")
	}
}
