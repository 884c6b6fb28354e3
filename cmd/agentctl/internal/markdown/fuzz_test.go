package markdown_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/markdown"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

// S10: whatever a model says, on the way it comes to the screen: no line is wider
// than the screen, the only escapes are those for looks, and in two pieces and at
// once it looks the same.
func FuzzStream(f *testing.F) {
	f.Add("# a **b** _c_ `d`\n- [x] e\n> f\n| g | h |\n|---|---|\n| 1 | 2 |\n", 7, 40, false)
	f.Add("```go\nx := *p\n~~~\n```\n[a](b) ~~c~~ \\*d\\*", 20, 12, true)
	f.Add("\x1b]0;x\x07\x1b[2Ja\u202eb\r\n日本語 👩\u200d👧 e\u0301\xff\t|", 3, 10, false)
	f.Add("a | b\n:-:|--:\n"+strings.Repeat("1 &amp; 2 <br> 3 | &#27;[2J 二三四\n", 120)+"2*3*4\n", 9, 14, false)
	f.Fuzz(func(t *testing.T, text string, at, width int, plain bool) {
		if len(text) > 10_000 || width < 12 || width > 200 {
			return
		}
		text = screen.Clean(text)
		cut := max(0, min(at, len(text)))
		for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
			cut--
		}
		style := markdown.Style{Color: true, Lead: "a1: ", Edge: "┆ ", Plain: plain}
		s := markdown.New(style)
		s.Write(text[:cut])
		s.Lines(30)
		s.Write(text[cut:])
		lines := look(s, width)
		if got, whole := strings.Join(lines, "\n"), laid(text, width, style); got != whole {
			t.Errorf("in pieces %q\nat once %q", got, whole)
		}
		for _, l := range lines {
			bare := escapes.ReplaceAllString(l, "")
			if strings.ContainsAny(bare, "\x1b\r\n\x00\x07\u009b") {
				t.Errorf("an escape: %q", l)
			}
			if w := lipgloss.Width(l); w > width {
				t.Errorf("%d columns of %d: %q", w, width, l)
			}
		}
	})
}
