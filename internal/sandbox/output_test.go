package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// S0-104: the output is capped and the rest is in a file the next run can read.
func TestOutputCap(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		spill := filepath.Join(dir, "a", "spill")
		r := mustRun(t, s, Command{Shell: "seq 1 20000", Workdir: dir, OutputCap: 1000, SpillDir: spill})
		var want bytes.Buffer
		for i := range 20000 {
			want.WriteString(itoa(i+1) + "\n")
		}
		if !r.Truncated || len(r.Stdout)+len(r.Stderr) != 1000 || filepath.Dir(r.Spill) != spill {
			t.Fatalf("got %d bytes, truncated %t, %q", len(r.Stdout), r.Truncated, r.Spill)
		}
		rest, err := os.ReadFile(r.Spill)
		if err != nil || string(r.Stdout)+string(rest) != want.String() {
			t.Errorf("the parts do not make the whole: %d + %d, want %d bytes, %v", len(r.Stdout), len(rest), want.Len(), err)
		}
		if st, err := os.Stat(r.Spill); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the spill file has mode %v, %v", st.Mode(), err)
		}
		again := mustRun(t, s, Command{Argv: []string{"tail", "-n", "1", r.Spill}, Workdir: dir})
		if string(again.Stdout) != "20000\n" {
			t.Errorf("the next run reads %q, %q", again.Stdout, again.Stderr)
		}
	})
}

func TestOutputCapShared(t *testing.T) {
	s, dir := only(t, LevelOff), workdir(t, LevelOff)
	r := mustRun(t, s, Command{Shell: "seq 1000; seq 1000 >&2", Workdir: dir, OutputCap: 4000})
	if len(r.Stdout)+len(r.Stderr) != 4000 || !r.Truncated || r.Spill != "" {
		t.Errorf("got %d + %d bytes, truncated %t, %q", len(r.Stdout), len(r.Stderr), r.Truncated, r.Spill)
	}
	r = mustRun(t, s, Command{Shell: "head -c 300000 /dev/zero", Workdir: dir})
	if len(r.Stdout) != DefaultOutputCap || !r.Truncated {
		t.Errorf("got %d bytes, want the default %d", len(r.Stdout), DefaultOutputCap)
	}
	r = mustRun(t, s, Command{Shell: "printf 12345", Workdir: dir, OutputCap: 5})
	if r.Truncated || string(r.Stdout) != "12345" {
		t.Errorf("exactly the cap: got %q, truncated %t", r.Stdout, r.Truncated)
	}
}

// A program cannot make us write elsewhere by links in the way of the spill.
func TestSpillLink(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir, other := only(t, l), workdir(t, l), outside(t)
		if err := os.Chmod(other, 0o777); err != nil {
			t.Fatal(err)
		}
		r := mustRun(t, s, Command{Shell: "ln -s " + other + " spill; seq 10000", Workdir: dir, OutputCap: 10, SpillDir: filepath.Join(dir, "spill")})
		left, err := os.ReadDir(other)
		if err != nil || len(left) > 0 || r.Spill != "" {
			t.Errorf("written outside: %v, %q, %v", left, r.Spill, err)
		}
		if !r.Truncated || len(r.Stdout) != 10 {
			t.Errorf("got %d bytes, truncated %t", len(r.Stdout), r.Truncated)
		}
	})
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"plain\n\ttext":             "plain\n\ttext",
		"a\x00b\x07c\x7fd":          "abcd",
		"a\r\nb\rc":                 "a\nb\nc",
		"end\r":                     "end\n",
		"\xff\xfeok":                "\ufffd\ufffdok",
		"gr\u00fc\u00df dich":       "gr\u00fc\u00df dich",
		"\x1b[31mred\x1b[0m":        "red",
		"\x1b]0;title\x07text":      "text",
		"\x1b]8;;http://x\x1b\\l":   "l",
		"\x1b(Bx\x1b=y\x1b7z":       "xyz",
		"\x1b[":                     "",
		"\x1b":                      "",
		"\x1b[12\nx":                "\nx",
		"\x1b]no end\nnext":         "\nnext",
		"\u0085\u009bx":             "x",
		"a\u202eb\u2066c\u200fd":    "abcd",
		"\u200bzero":                "\u200bzero",
		"\x1bP1;2|data\x1b\\after":  "after",
		"\x1b[38;5;1mx\x1b[Ky\x1b[": "xy",
	} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\xff\r\n\u202e", "\x1b[\x1b[\x1b]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Text(b)
		if !utf8.ValidString(got) {
			t.Errorf("Text(%q) = %q is not UTF-8", b, got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }) {
			t.Errorf("Text(%q) = %q has control characters", b, got)
		}
		if again := Text([]byte(got)); again != got {
			t.Errorf("Text(%q) = %q is not stable: %q", b, got, again)
		}
	})
}
