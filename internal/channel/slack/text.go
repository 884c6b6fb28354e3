package slack

import (
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/theclaw/agents/internal/chunk"
	"github.com/theclaw/agents/internal/markup"
)

const (
	// maxText is the most UTF-16 units of a message.
	maxText = 4000
	// maxSection is the most UTF-16 units of a section of a message with buttons.
	maxSection = 3000
)

// render makes mrkdwn of a text. One that is longer than limit is cut, and a part of which the
// rendered text is still too long is cut once more. It is never empty: the platform refuses an
// empty text, with a cause that is recorded.
func render(text string, limit int) []string {
	if s := markup.Parse(text).Slack(); units(s) <= limit {
		return []string{s}
	}
	return cut(text, limit, limit)
}

func cut(text string, at, limit int) (list []string) {
	for _, piece := range chunk.Split(text, chunk.Bounds{Max: at, Units: utf16.RuneLen}) {
		s := markup.Parse(piece.Text).Slack()
		switch {
		case units(s) <= limit:
			list = append(list, s)
		case at > chunk.Least:
			list = append(list, cut(piece.Text, at/2, limit)...)
		default: // formatting makes it as long
			list = append(list, escape.Replace(piece.Text))
		}
	}
	return list
}

// units counts UTF-16 units.
func units(s string) (n int) {
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

var (
	escape   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	unescape = strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">")
	// reference is what Slack writes for a person, a channel, a group or a link.
	reference = regexp.MustCompile(`<([^<>]+)>`)
)

// readable makes of the text of a message what people see. name returns the name of a person.
func readable(text string, name func(id string) string) string {
	out := reference.ReplaceAllStringFunc(text, func(s string) string {
		to, label, labeled := strings.Cut(s[1:len(s)-1], "|")
		switch {
		case strings.HasPrefix(to, "@"):
			if known := name(to[1:]); known != "" {
				label = known
			}
			if label == "" {
				return to
			}
			return "@" + strings.TrimPrefix(label, "@")
		case strings.HasPrefix(to, "#"):
			if label == "" {
				return to
			}
			return "#" + label
		case strings.HasPrefix(to, "!date^"):
			return label
		case strings.HasPrefix(to, "!"):
			if label != "" {
				return "@" + strings.TrimPrefix(label, "@")
			}
			return "@" + to[1:]
		}
		to = strings.TrimPrefix(to, "mailto:")
		if !labeled || label == "" || label == to {
			return to
		}
		return label + " (" + to + ")"
	})
	return unescape.Replace(out)
}

// mentions reports whether a text, as it came, addresses a person.
func mentions(text, user string) bool {
	return user != "" && (strings.Contains(text, "<@"+user+">") || strings.Contains(text, "<@"+user+"|"))
}
