package markup_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/markup"
)

var update = flag.Bool("update", false, "write testdata/*.txt again")

// Each file of testdata has a text, and what every platform gets of it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			md, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			d := markup.Parse(string(md))
			text, entities := d.Telegram()
			check(t, text, entities)
			var got strings.Builder
			got.WriteString("-- telegram --\n" + text + "\n-- entities --\n")
			for _, e := range entities {
				line, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(string(line) + " " + part(text, e) + "\n")
			}
			got.WriteString("-- slack --\n" + d.Slack() + "\n-- html --\n" + d.HTML() + "\n-- plain --\n" + d.Plain() + "\n")
			golden := strings.TrimSuffix(name, ".md") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// part is what an entity covers, in quotes.
func part(text string, e markup.Entity) string {
	var b strings.Builder
	at := 0
	for _, r := range text {
		if at >= e.Offset && at < e.Offset+e.Length {
			b.WriteRune(r)
		}
		at += utf16(r)
	}
	quoted, _ := json.Marshal(b.String()) // a string always can be
	return string(quoted)
}

// Offsets count UTF-16 units, whatever stands before and in an entity.
func TestUTF16(t *testing.T) {
	for _, c := range []struct {
		md, text       string
		offset, length int
	}{
		{"**a**", "a", 0, 1},
		{"é **a**", "é a", 2, 1},
		{"日本 **語**", "日本 語", 3, 1},
		{"👍 **a**", "👍 a", 3, 1},
		{"x **👩‍👩‍👧** y", "x 👩‍👩‍👧 y", 2, 8},
		{"🇩🇪🇫🇷 **e\u0301**", "🇩🇪🇫🇷 e\u0301", 9, 2},
		{"𝒳𝒴 **𝒵** b", "𝒳𝒴 𝒵 b", 5, 2},
		{"- 👍🏽 **b**", "• 👍🏽 b", 7, 1},
		{"\xff **a**", "\ufffd a", 2, 1},
		{"a\x00\x07 **b**", "a b", 2, 1},
	} {
		text, list := markup.Parse(c.md).Telegram()
		want := []markup.Entity{{Type: "bold", Offset: c.offset, Length: c.length}}
		if diff := cmp.Diff(want, list); text != c.text || diff != "" {
			t.Errorf("%q became %q %s", c.md, text, diff)
		}
	}
}

// A link leads to http, https and mailto only, and nothing of a text is an element or a mention.
func TestTextIsData(t *testing.T) {
	for _, c := range []struct{ md, html, slack string }{
		{"[a](javascript:alert(1))", "<p>a</p>", "a"},
		{"[a](JaVaScRiPt:alert)", "<p>a</p>", "a"},
		{"[a](java&#x0A;script:x)", "<p>a</p>", "a"},
		{"[a](data:text/html,x)", "<p>a</p>", "a"},
		{"[a](tg://user?id=1)", "<p>a</p>", "a"},
		{"[a](vbscript:x) [b](file:///etc/passwd) [c](//x.org) [d](/x)", "<p>a b c d</p>", "a b c d"},
		{"<javascript:x>", "<p>javascript:x</p>", "javascript:x"},
		{"[a](http://)", "<p>a</p>", "a"},
		{`[a](https://x.org/?q=1&amp;b="><script>)`, "", `<https://x.org/?q=1&amp;b="%3E%3Cscript%3E|a>`},
		{"[a](https://x.org/|<!channel>)", "", "<https://x.org/%7C%3C%21channel%3E|a>"},
		{"![x](javascript:y)", "<p>x</p>", "x"},
		{"<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>", "&lt;script&gt;alert(1)&lt;/script&gt;"},
		{"<img src=x onerror=y>", "<p>&lt;img src=x onerror=y&gt;</p>", "&lt;img src=x onerror=y&gt;"},
		{"```\"><script>\nx\n```", "<pre><code>x\n</code></pre>", "```\nx\n```"},
		{"```\n</code><b>\n```", "<pre><code>&lt;/code&gt;&lt;b&gt;\n</code></pre>", "```\n&lt;/code&gt;&lt;b&gt;\n```"},
		{"<!channel> <@U1> <#C1> <!subteam^S1>", "", "&lt;!channel&gt; &lt;@U1&gt; &lt;#C1&gt; &lt;!subteam^S1&gt;"},
		{"`<!here>`", "<p><code>&lt;!here&gt;</code></p>", "`&lt;!here&gt;`"},
		{"[<!here>](https://x.org)", "", "<https://x.org|&lt;!here&gt;>"},
		{"[a]: javascript:x\n\n[a]", "<p>[a]: javascript:x</p><p>[a]</p>", "[a]: javascript:x\n\n[a]"},
	} {
		d := markup.Parse(c.md)
		if got := d.HTML(); c.html != "" && got != c.html {
			t.Errorf("%q as HTML: %s", c.md, got)
		}
		if got := d.Slack(); got != c.slack {
			t.Errorf("%q for Slack: %q", c.md, got)
		}
		if _, list := d.Telegram(); strings.HasPrefix(c.html, "<p>a</p>") && len(list) > 0 {
			t.Errorf("%q for Telegram: %+v", c.md, list)
		}
	}
}

// A text that shows something never becomes an empty one: it would not be sent.
func TestNeverEmpty(t *testing.T) {
	for md, want := range map[string]string{
		"": "", " \n\t": "", "\x00": "",
		"[](https://x.org)":                   "[](https://x.org)",
		"```\n```":                            "```\n```",
		"-":                                   "•",
		"****":                                "———",
		"<!-- a -->":                          "<!-- a -->",
		"\\":                                  "\\",
		strings.Repeat("*a* ", 1<<16) + "*b*": strings.TrimSpace(strings.Repeat("*a* ", 1<<16)) + " *b*",
	} {
		if text, _ := markup.Parse(md).Telegram(); text != want {
			t.Errorf("%.40q became %.200q", md, text)
		}
	}
}

// Lists and quotes are in each other up to a depth; what is deeper is shown as it is written.
func TestDepth(t *testing.T) {
	if got := markup.Parse(strings.Repeat("> ", 40) + "a").HTML(); strings.Count(got, "<blockquote>") != 16 || !strings.Contains(got, "a</p>") {
		t.Error(got)
	}
	got := markup.Parse(strings.Repeat("*a **b ", 40) + strings.Repeat("c** d*", 40)).HTML()
	if n := strings.Count(got, "<em>") + strings.Count(got, "<strong>"); n < 10 || n > 20 || !strings.Contains(got, "b") {
		t.Error(n, got)
	}
	links := markup.Parse(strings.Repeat("[a](https://x.org) ", 300)).HTML()
	if n := strings.Count(links, "<a "); n != 200 {
		t.Errorf("%d links of a block", n)
	}
}

// S10: any text becomes one that the platforms take.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.md")
	for _, name := range files {
		md, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(md))
	}
	for _, md := range hostile(200) {
		f.Add(md)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if len(md) > 20_000 {
			return
		}
		d := markup.Parse(md)
		text, list := d.Telegram()
		check(t, text, list)
		if (text == "") != (strings.TrimSpace(d.Plain()) == "") || (text == "") != (strings.TrimSpace(d.Slack()) == "") {
			t.Errorf("%q shows %q, %q and %q", md, text, d.Plain(), d.Slack())
		}
		if s := d.Slack(); strings.Contains(s, "<!") || strings.Contains(s, "<@") || strings.Contains(s, "<#") {
			t.Errorf("%q mentions: %q", md, s)
		}
		for _, el := range strings.Split(d.HTML(), "<")[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(el, "/"), ">")
			name, attributes, _ := strings.Cut(name, " ")
			switch {
			case !strings.Contains(" p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre hr table tr td strong em del code a br ", " "+name+" "):
				t.Errorf("%q has the element %q", md, name)
			case attributes != "" && !strings.HasPrefix(attributes, `href="http`) && !strings.HasPrefix(attributes, `href="mailto:`) &&
				!strings.HasPrefix(attributes, `class="language-`) && !strings.HasPrefix(attributes, `start="`):
				t.Errorf("%q has the attributes %q", md, attributes)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	md, err := os.ReadFile("testdata/answer.md")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(md)))
	for b.Loop() {
		if text, _ := markup.Parse(string(md)).Telegram(); text == "" {
			b.Fatal("empty")
		}
	}
}

// A literal is shown as it is, whatever it holds.
func TestLiterals(t *testing.T) {
	for _, text := range []string{"ls -la", "`", "a``b", "```", "`x` and **y**", "[a](https://x.org) <@U1> _b_", `\\*`} {
		if got := markup.Parse("**x** " + markup.Code(text) + ": ok").Plain(); got != "x "+text+": ok" {
			t.Errorf("%q in a line: %q", text, got)
		}
		lines := "# " + text + "\n> " + text
		if got := markup.Parse("x\n" + markup.Fenced(lines) + "\ny").Plain(); !strings.Contains(got, lines) {
			t.Errorf("%q in lines: %q", lines, got)
		}
	}
}
