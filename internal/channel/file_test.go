package channel

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// closer counts how often it is closed.
type closer struct {
	io.Reader
	n int
}

func (c *closer) Close() error { c.n++; return nil }

// TestFile: a file is read up to its limit and no further, whatever size is stated.
func TestFile(t *testing.T) {
	for _, tc := range []struct {
		name          string
		content       string
		stated, limit int64
		want          string
		opens, fits   bool
	}{
		{"of its size", "12345", 5, 5, "12345", true, true},
		{"of no stated size", "12345", -1, 5, "12345", true, true},
		{"empty", "", 0, 0, "", true, true},
		{"longer than stated", "123456", 5, 5, "12345", true, false},
		{"too long", "1234567", -1, 5, "12345", true, false},
		{"stated to be too long", "12345", 6, 5, "", false, false},
	} {
		for form, body := range map[string]io.Reader{"at once": strings.NewReader(tc.content), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.content))} {
			t.Run(tc.name+", "+form, func(t *testing.T) {
				c := &closer{Reader: body}
				f, err := File(c, tc.stated, tc.limit)
				if !tc.opens {
					if !errors.Is(err, ErrTooLarge) || c.n != 1 {
						t.Errorf("opened with %v, closed %d times", err, c.n)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(f)
				if string(got) != tc.want || tc.fits != (err == nil) || !tc.fits && !errors.Is(err, ErrTooLarge) {
					t.Errorf("read %q, %v", got, err)
				}
				if err := f.Close(); err != nil || c.n != 1 {
					t.Errorf("closed %d times, %v", c.n, err)
				}
			})
		}
	}
}
