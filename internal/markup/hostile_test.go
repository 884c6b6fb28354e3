package markup_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/markup"
)

// hostile are texts that cost a parser without bounds the square, or more, of their length.
func hostile(size int) map[string]string {
	list := map[string]string{}
	for name, piece := range map[string]string{
		"link open":      "[a](",
		"link":           "[a](b)",
		"link nested":    "[[a](b)",
		"bracket":        "[",
		"brackets":       "[]",
		"image":          "![",
		"closing":        "]",
		"definition":     "[a]: b\n",
		"definitions":    "[a]: <b>\n\n[a]\n\n",
		"quote":          ">",
		"quotes":         "> ",
		"quote lines":    "> > > > > > > > > > > > > > > > > > > > a\n",
		"list":           "- ",
		"numbers":        "1. ",
		"list lines":     "- - - - - - - - - - - - - - - - - - - - - a\n",
		"mixed":          "> - * + 1. ",
		"spaces":         strings.Repeat(" ", 500) + "- a\n",
		"emphasis":       "a**b_",
		"openers":        "**a ",
		"closers":        "a_ *a ",
		"both":           "*a_b~",
		"underscores":    "_a",
		"strike":         "~~a ~b",
		"autolink":       "<a:",
		"autolinks":      "<http://a",
		"mail":           "<a@",
		"html":           "<!--a",
		"instruction":    "<?a",
		"element":        "<a b='",
		"escapes":        "\\*\\[",
		"references":     "&#1;&amp",
		"fences":         "```\n~~~\n",
		"table":          "|a|b\n|-|-\n",
		"columns":        "|",
		"delimiter rows": "-|-\n",
		"setext":         "a\n-\n",
		"headings":       "# ",
		"tasks":          "- [ ] ",
		"breaks":         "a  \n",
		"tabs":           "\t- ",
	} {
		list[name] = strings.Repeat(piece, size/len(piece))
	}
	var ticks, rows, deep strings.Builder
	for n := 1; ticks.Len() < size; n++ {
		ticks.WriteString(strings.Repeat("`", n) + "a")
	}
	list["code spans"] = ticks.String()
	rows.WriteString(strings.Repeat("|a", 60) + "\n" + strings.Repeat("|-", 60) + "\n")
	for rows.Len() < size {
		rows.WriteString("|\n")
	}
	list["rows"] = rows.String()
	for n := 0; deep.Len() < size; n++ {
		deep.WriteString(strings.Repeat("  ", n) + "- a\n")
	}
	list["indented"] = deep.String()
	return list
}

// No text costs more than its length, and each shows something. Without the bounds some of these
// take minutes.
func TestHostile(t *testing.T) {
	for name, text := range hostile(64 << 10) {
		t.Run(name, func(t *testing.T) {
			d := markup.Parse(text)
			shown, entities := d.Telegram()
			if strings.TrimSpace(shown) == "" {
				t.Error("shows nothing")
			}
			check(t, shown, entities)
			if n := len(d.HTML()) + len(d.Slack()) + len(d.Plain()); n > 60*len(text) {
				t.Errorf("%d bytes became %d", len(text), n)
			}
		})
	}
}

// check holds entities to what the Bot API takes.
func check(t *testing.T, text string, list []markup.Entity) {
	t.Helper()
	units := markup.UTF16(text)
	if !utf8.ValidString(text) || strings.TrimSpace(text) != text {
		t.Errorf("text %.200q is not valid, or has white space at its ends", text)
	}
	if len(list) > 100 {
		t.Errorf("%d entities", len(list))
	}
	starts := map[int]bool{units: true}
	at := 0
	for _, r := range text {
		starts[at] = true
		at += utf16(r)
	}
	end := map[string]int{}
	var around []markup.Entity
	for i, e := range list {
		if e.Length <= 0 || !starts[e.Offset] || !starts[e.Offset+e.Length] {
			t.Errorf("entity %+v is empty, or cuts a character of %.200q", e, text)
		}
		if i > 0 && e.Offset < list[i-1].Offset {
			t.Errorf("entity %+v stands behind %+v", e, list[i-1])
		}
		if e.Offset < end[e.Type] {
			t.Errorf("entity %+v overlaps another %s", e, e.Type)
		}
		end[e.Type] = e.Offset + e.Length
		for len(around) > 0 && around[len(around)-1].Offset+around[len(around)-1].Length <= e.Offset {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			if o := around[len(around)-1]; e.Offset+e.Length > o.Offset+o.Length || o.Type == "code" || o.Type == "pre" || e.Type == "code" && o.Type != "blockquote" {
				t.Errorf("entity %+v cannot be in %+v", e, o)
			}
		}
		around = append(around, e)
	}
}

func utf16(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}
