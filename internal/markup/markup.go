// Package markup renders the Markdown of a reply in the forms that chat platforms take.
//
//	Markdown --Parse--> Doc --> Telegram: text with entities
//	                            Slack:    mrkdwn
//	                            HTML:     elements without attributes of the text
//	                            Plain:    text
//
// It promises: what a text costs grows with its length, whatever it holds (see guard.go); a text
// that shows something never becomes an empty one; and a text is data: it makes no element, no
// mention and no link other than to http, https and mailto. Offsets of entities are those of the
// platform, UTF-16 units.
//
// It does not cut a text into messages (package chunk does), does not bound what it returns, and
// knows no reference links, no footnotes and no HTML: they are shown as they are written.
package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Doc is a parsed text. It is immutable.
type Doc struct {
	blocks []*node
	runs   []run
}

const (
	// maxText is the longest text that is parsed, in bytes; a longer one is shown as it is written.
	maxText = 256 << 10
	// maxNodes is how many nodes a text may have; one with more is shown as it is written.
	maxNodes = 20_000
)

// Parse reads a text. It takes any text, and has no errors: what is no Markdown is text.
func Parse(md string) Doc {
	md = clean(md)
	var d Doc
	if len(md) <= maxText {
		d.blocks = parse(md)
		d.runs = layout(d.blocks)
	}
	if len(d.runs) == 0 && strings.TrimSpace(md) != "" {
		d.blocks = []*node{{kind: paragraph, children: []*node{{kind: plain, text: md}}}}
		d.runs = []run{{text: strings.TrimSpace(md)}}
	}
	return d
}

// clean makes a text valid UTF-8 without control characters.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, string(utf8.RuneError)), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r != '\n' && r != '\t' && unicode.IsControl(r):
			return -1
		}
		return r
	}, s)
}
