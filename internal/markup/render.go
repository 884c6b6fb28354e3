package markup

import (
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain returns the text without any form. A link is followed by its address.
func (d Doc) Plain() string {
	var b strings.Builder
	for i, r := range d.runs {
		b.WriteString(r.text)
		if r.to == "" || i+1 < len(d.runs) && d.runs[i+1].to == r.to {
			continue
		}
		if shown := strings.TrimSuffix(strings.TrimPrefix(r.to, "mailto:"), "/"); !strings.HasSuffix(b.String(), shown) {
			b.WriteString(" (" + r.to + ")")
		}
	}
	return b.String()
}

// Slack returns the text as mrkdwn. It mentions no person and no group.
func (d Doc) Slack() string {
	var b strings.Builder
	lineStart, word := true, false // at the start of a line; behind a word
	for i, r := range d.runs {
		if r.pre {
			if !lineStart {
				b.WriteByte('\n')
			}
			b.WriteString("```\n" + strings.ReplaceAll(slackText(r.text), "```", "``\u200b`") + "\n```")
			lineStart, word = false, false
			continue
		}
		lines := strings.Split(r.text, "\n")
		for k, line := range lines {
			if k > 0 {
				b.WriteByte('\n')
				lineStart, word = true, false
			}
			if line == "" {
				if r.quote && k > 0 && k < len(lines)-1 {
					b.WriteByte('>')
				}
				continue
			}
			if lineStart && r.quote {
				b.WriteString("> ")
			}
			core := strings.TrimSpace(line)
			at := strings.Index(line, core)
			open, end := r.slackMarks()
			if core == "" || open == "" {
				b.WriteString(slackText(line))
			} else {
				// A mark counts only next to what is no part of a word.
				if at == 0 && word {
					b.WriteString("\u200b")
				}
				b.WriteString(line[:at] + open + r.slackCore(core) + end + line[at+len(core):])
				if next := at+len(core) == len(line) && i+1 < len(d.runs); next && startsWord(d.runs[i+1]) {
					b.WriteString("\u200b")
				}
			}
			last, _ := utf8.DecodeLastRuneInString(line)
			lineStart, word = false, !unicode.IsSpace(last)
		}
	}
	return b.String()
}

func startsWord(r run) bool {
	first, _ := utf8.DecodeRuneInString(r.text)
	return unicode.IsLetter(first) || unicode.IsDigit(first)
}

// slackMarks returns what stands before and behind a run.
func (r run) slackMarks() (open, end string) {
	if r.code {
		return "`", "`"
	}
	for _, m := range []struct {
		on   bool
		mark string
	}{{r.bold, "*"}, {r.italic, "_"}, {r.strike, "~"}} {
		if m.on {
			open, end = open+m.mark, m.mark+end
		}
	}
	if r.to != "" {
		open, end = open+"<"+slackURL.Replace(r.to)+"|", ">"+end
	}
	return open, end
}

// slackCore returns the text between the marks of a run.
func (r run) slackCore(text string) string {
	if r.code {
		text = strings.ReplaceAll(text, "`", "'")
	}
	return slackText(text)
}

var (
	slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	slackURL    = strings.NewReplacer("|", "%7C", "<", "%3C", ">", "%3E", "&", "&amp;")
)

func slackText(s string) string { return slackEscape.Replace(s) }

// HTML returns the text as elements. They have no attribute but the address of a link, the class
// language-NAME of a block of code, and the first number of a list.
func (d Doc) HTML() string {
	var b strings.Builder
	writeHTML(&b, d.blocks)
	return b.String()
}

func writeHTML(b *strings.Builder, list []*node) {
	for _, n := range list {
		name, attributes := string(n.kind), ""
		switch n.kind {
		case plain:
			b.WriteString(html.EscapeString(n.text))
			continue
		case newline, rule:
			b.WriteString("<" + name + ">")
			continue
		case pre:
			if n.language != "" {
				attributes = ` class="language-` + html.EscapeString(n.language) + `"`
			}
			b.WriteString("<pre><code" + attributes + ">" + html.EscapeString(n.text) + "\n</code></pre>")
			continue
		case heading:
			name += strconv.Itoa(n.number)
		case numbers:
			if n.number != 1 {
				attributes = ` start="` + strconv.Itoa(n.number) + `"`
			}
		case link:
			attributes = ` href="` + html.EscapeString(n.to) + `" rel="nofollow noopener noreferrer"`
		}
		b.WriteString("<" + name + attributes + ">" + html.EscapeString(n.text))
		writeHTML(b, n.children)
		b.WriteString("</" + name + ">")
	}
}
