package prompt

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// replyTo is the key of the message that another one answers.
const replyTo = "reply_to"

// plain is the text of a content that needs no decoding, which is what most
// messages are: an object whose text comes first and has no escape, and which has
// nothing else that counts here, such as reply_to. Keys count in any case of their letters.
func plain(content string) (string, bool) {
	const begin = `{"text":"`
	rest, ok := strings.CutPrefix(content, begin)
	end := strings.IndexAny(rest, `"\`)
	if !ok || end < 0 || rest[end] == '\\' {
		return "", false
	}
	text, rest := rest[:end], rest[end+1:]
	for i := strings.IndexByte(rest, '"'); i >= 0 && i+1 < len(rest); {
		switch rest[i+1] {
		case 't', 'T', 'a', 'A', '\\': // text, attachments, or either in escapes
			return "", false
		case 'r', 'R': // reply_to, or in escapes; but not reply_context, which every reply has
			key, _, _ := strings.Cut(rest[i+1:], `"`)
			if strings.EqualFold(key, replyTo) || strings.Contains(key, `\`) {
				return "", false
			}
		}
		next := strings.IndexByte(rest[i+1:], '"')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	if !utf8.ValidString(text) || !json.Valid([]byte(content)) {
		return "", false
	}
	return text, true
}
