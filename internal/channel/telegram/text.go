package telegram

import (
	"unicode/utf16"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/markup"
)

// maxUnits is the most UTF-16 units of a message.
const maxUnits = 4096

// rendered is a text as it is sent. The places of its entities are in UTF-16 units.
type rendered struct {
	Text     string          `json:"text"`
	Entities []markup.Entity `json:"entities,omitempty"`
}

// render makes a message of Markdown. What is too long only because of its formatting is sent as
// it is written.
func render(text string) (out rendered) {
	out.Text, out.Entities = markup.Parse(text).Telegram()
	if markup.UTF16(out.Text) > maxUnits {
		return rendered{Text: text}
	}
	return out
}

// Limit implements [channel.Limiter].
func (s *sender) Limit() channel.Limit {
	return channel.Limit{Max: maxUnits, Units: utf16.RuneLen, Size: func(text string) int {
		shown, _ := markup.Parse(text).Telegram()
		return markup.UTF16(shown)
	}}
}
