package transcript_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
)

var (
	t0      = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

func after(d time.Duration) time.Time { return t0.Add(d) }

func shown(t *transcript.Transcript, now time.Time) string {
	return strings.TrimLeft(escapes.ReplaceAllString(strings.Join(t.View(60, 20, now), "\n"), ""), "\n")
}

// One run as it happens: a thought, a tool, the reply.
func TestRun(t *testing.T) {
	s := transcript.New("a1", false)
	s.You("do it")
	s.Think("I shall **run**\nsomething", t0)
	if got := shown(s, after(1500*time.Millisecond)); got != "you: do it\n▸ thinking for 1.5s" {
		t.Errorf("thinking: %q", got)
	}
	s.Start("c1", "bash_exec", `{"command":"ls -l\npwd","comment":"look"}`, "", after(2*time.Second))
	s.Update("c1", "total 0\n")
	if got := shown(s, after(5*time.Second)); got != "you: do it\n▸ thought for 2.0s\n▸ bash_exec ls -l⏎pwd · running · 3.0s" {
		t.Errorf("running: %q", got)
	}
	if !s.FoldAll() {
		t.Error("not opened")
	}
	want := "you: do it\n▾ thought for 2.0s\n  ┆ I shall **run**\n  ┆ something\n▾ bash_exec ls -l⏎pwd · running · 3.0s\n" +
		"  ┆ $ ls -l\n  ┆ pwd\n  ┆ # look\n  ┆ ----\n  ┆ total 0"
	if got := shown(s, after(5*time.Second)); got != want {
		t.Errorf("open:\n%s\nwant\n%s", got, want)
	}
	s.FoldAll()
	s.End("c1", `{"stdout":"total 0\n","stderr":"","exit_code":3}`, after(6*time.Second))
	s.Say("All ", after(6*time.Second))
	s.Say("done", after(6*time.Second))
	s.Finish("All done", map[string]time.Duration{"c1": 3900 * time.Millisecond}, after(7*time.Second))
	want = "you: do it\n▸ thought for 2.0s\n▸ bash_exec ls -l⏎pwd · exit 3 · 3.9s\na1: All done"
	if got := shown(s, after(9*time.Second)); got != want {
		t.Errorf("end:\n%s\nwant\n%s", got, want)
	}
	s.Click(3, after(9*time.Second))
	if got := shown(s, after(9*time.Second)); !strings.Contains(got, "▾ bash_exec") || !strings.Contains(got, "▸ thought") {
		t.Errorf("clicked: %s", got)
	}
}

// A run that is interrupted says again what was not whole, and the reply that
// stands is the one shown, once.
func TestAgain(t *testing.T) {
	s := transcript.New("a1", false)
	s.You("hi")
	s.Say("first\n", t0)
	s.Start("c1", "x", "{}", "", t0)
	s.End("c1", "fine", t0)
	s.Say("half a wo", t0)
	s.Again()
	s.Say("another word", t0)
	s.Finish("another word!", nil, t0)
	if got := shown(s, t0); got != "you: hi\na1: first\n▸ x {} · ok · 0ms\na1: another word!" {
		t.Errorf("%q", got)
	}
	s.Finish("said without a stream", nil, t0)
	if got := shown(s, t0); !strings.HasSuffix(got, "!\na1: said without a stream") {
		t.Errorf("%q", got)
	}
	s.Start("c2", "x", "{}", "", t0)
	s.Stop(after(time.Second))
	if got := shown(s, after(time.Minute)); !strings.HasSuffix(got, "▸ x {} · ended · 1.0s") {
		t.Errorf("%q", got)
	}
}

// After an interruption the text stays until what is said again is longer, or another one.
func TestSaidAgain(t *testing.T) {
	for name, c := range map[string]struct {
		pieces, want []string
	}{
		"the same and more": {[]string{"one ", "two th", "ree ", "four"}, []string{"one two three", "one two three", "one two three", "one two three four"}},
		"another one":       {[]string{"one", " 2", " 3"}, []string{"one two three", "one 2", "one 2 3"}},
	} {
		s := transcript.New("a1", false)
		s.You("hi")
		s.Say("one two three", t0)
		s.Again()
		s.Note("the run goes on")
		if got := shown(s, t0); got != "you: hi\na1: one two three\n  the run goes on" {
			t.Errorf("%s: held %q", name, got)
		}
		s.Think("hm", t0)
		for i, piece := range c.pieces {
			s.Say(piece, t0)
			if got := shown(s, t0); !strings.HasPrefix(got, "you: hi\n") || !strings.Contains(got, "\na1: "+c.want[i]) || strings.Count(got, "a1: ") != 1 {
				t.Errorf("%s, piece %d: %q", name, i, got)
			}
		}
		text := c.want[len(c.want)-1]
		s.Finish(text, nil, t0)
		if got := shown(s, t0); got != "you: hi\n  the run goes on\n▸ thought for 0ms\na1: "+text {
			t.Errorf("%s: end %q", name, got)
		}
	}
	s := transcript.New("a1", false)
	s.Say("one", t0)
	s.Again()
	s.Start("c", "x", "{}", "", t0)
	if got := shown(s, t0); strings.Contains(got, "one") {
		t.Errorf("not said again: %q", got)
	}
	s.Say("two", t0)
	s.Again()
	s.Stop(t0) // aborted: what was said stays
	if got := shown(s, t0); !strings.HasSuffix(got, "a1: two") {
		t.Errorf("stopped: %q", got)
	}
}

// H5: what the person types is shown as it is typed.
func TestYou(t *testing.T) {
	s := transcript.New("a1", false)
	s.You("2*3*4 = *x* &amp;\n# no\n| a | b |\n|---|---|")
	if got := shown(s, t0); got != "you: 2*3*4 = *x* &amp;\n# no\n| a | b |\n|---|---|" {
		t.Errorf("%q", got)
	}
}

// What is there already is laid out anew when the terminal reports its background, or how it
// counts columns: neither changes the words.
func TestTerminal(t *testing.T) {
	s := transcript.New("a1", true)
	s.You("`x` 👩\u200d👧")
	s.Say("`x` 👩\u200d👧\n\n| 👩\u200d👧 | 1 |\n|---|---|\n| 2 | 3 |", t0)
	s.Start("c", "x", "👩\u200d👧", "", t0)
	s.Problem("bad")
	dark := strings.Join(s.View(60, 20, t0), "\n")
	for _, want := range []string{"\x1b[1;36myou:", "\x1b[1;32ma1:", "\x1b[36mx", "\x1b[31m!"} {
		if !strings.Contains(dark, want) {
			t.Errorf("dark: no %q in %q", want, dark)
		}
	}
	s.Light(true)
	light := strings.Join(s.View(60, 20, t0), "\n")
	for _, want := range []string{"\x1b[1;34myou:", "\x1b[1ma1:", "\x1b[34mx", "\x1b[31m!"} {
		if !strings.Contains(light, want) {
			t.Errorf("light: no %q in %q", want, light)
		}
	}
	if regexp.MustCompile(`\x1b\[([0-9;]*;)?3[2356]`).MatchString(light) || escapes.ReplaceAllString(light, "") != escapes.ReplaceAllString(dark, "") {
		t.Errorf("light %q, dark %q", light, dark)
	}
	s.Apart(true)
	if got := shown(s, t0); strings.Contains(got, "\u200d") || strings.Count(got, "👩👧") != 4 || !strings.Contains(got, "👩👧 │ 1\n─────┼───\n2    │ 3") {
		t.Errorf("apart: %s", got)
	}
	s.Apart(false)
	if got := shown(s, t0); got != strings.TrimLeft(escapes.ReplaceAllString(dark, ""), "\n") {
		t.Errorf("joined again: %s", got)
	}
}

// What others say cannot touch the terminal, in whatever it is said.
func TestHarmless(t *testing.T) {
	s := transcript.New("a1", false)
	bad := "\x1b[2Jx\x07"
	s.You(bad)
	s.Reply(bad)
	s.Note(bad)
	s.Problem(bad)
	s.Think(bad, t0)
	s.Start("c", bad, bad, "", t0)
	s.Update("c", bad)
	s.FoldAll()
	s.View(60, 20, t0)
	s.End("c", bad, t0)
	s.Say(bad, t0)
	if got := strings.Join(s.View(60, 40, t0), "\n"); strings.Contains(got, "\x1b[2J") || strings.Contains(got, "\x07") {
		t.Errorf("%q", got)
	}
}

func TestScroll(t *testing.T) {
	s := transcript.New("a1", false)
	for i := range 2 * transcript.MaxEntries {
		s.Note(fmt.Sprint("line ", i))
	}
	view := func() string { return escapes.ReplaceAllString(strings.Join(s.View(60, 3, t0), ","), "") }
	if got := view(); got != "  line 997,  line 998,  line 999" {
		t.Error(got)
	}
	s.Scroll(2)
	if got := view(); got != "  line 995,  line 996,  line 997" {
		t.Error(got)
	}
	s.Top()
	if got := view(); got != "  line 500,  line 501,  line 502" || s.Below() == 0 {
		t.Error(got)
	}
	s.Bottom()
	s.View(60, 3, t0)
	s.Scroll(2)
	view()
	s.Note("line 1000\nand more")
	if got := view(); got != "  line 995,  line 996,  line 997" || s.Below() != 4 {
		t.Errorf("what is read moves: %s, %d below", got, s.Below())
	}
	s.Bottom()
	if got := view(); got != "  line 999,  line 1000,  and more" {
		t.Error(got)
	}
	if got := view(); !strings.HasSuffix(got, "and more") {
		t.Error(got)
	}
	s.Mark()
	s.You("new")
	if got := escapes.ReplaceAllString(s.Remaining(t0), ""); got != "you: new\n" {
		t.Errorf("left behind %q", got)
	}
}

// BenchmarkDelta is one piece of a reply and one look, in a long conversation
// and at the end of a long reply.
func BenchmarkDelta(b *testing.B) {
	s := transcript.New("a1", true)
	for range transcript.MaxEntries {
		s.Reply(strings.Repeat("Some **text** with `code`.\n", 50))
	}
	s.Say(strings.Repeat("Some **text** with `code`.\n", 20_000), t0)
	s.View(100, 40, t0)
	for b.Loop() {
		s.Say("word ", t0)
		s.View(100, 40, t0)
	}
}
