package markdown

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Apart is a text without what joins an emoji with the next one, colors its skin or selects
// its look. Terminals disagree about the columns of such emoji, except those that report
// mode 2027: a table with one of them would have its next cells at the wrong place. What is
// left has the same columns everywhere. Joiners between letters stay, where scripts need
// them. Apart(Apart(a)+b) is Apart(a+b).
func Apart(text string) string {
	if strings.IndexFunc(text, joins) < 0 {
		return text
	}
	var b strings.Builder
	before := ' '
	for _, r := range text {
		if joins(r) && (r == textLook || r == emojiLook || emoji(before)) {
			continue
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

const (
	joiner              = 0x200D
	textLook, emojiLook = 0xFE0E, 0xFE0F
	lightSkin, darkSkin = 0x1F3FB, 0x1F3FF
)

func joins(r rune) bool {
	return r == joiner || r >= lightSkin && r <= darkSkin || r == textLook || r == emojiLook
}

// emoji are the symbols that can be followed by a joiner or a skin.
func emoji(r rune) bool { return r >= 0x1F000 && r < 0x20000 || r >= 0x2300 && r < 0x2C00 }

// method is how the terminal counts columns: by characters, or by what they join to.
func (s *Stream) method() ansi.Method {
	if s.style.Apart {
		return ansi.WcWidth
	}
	return ansi.GraphemeWidth
}

func (s *Stream) columns(text string) int { return s.method().StringWidth(text) }
