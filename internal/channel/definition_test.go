package channel

import (
	"encoding/json"
	"testing"
)

// S2-46: which parts of a reply name the message that they answer.
func TestNamesTheAnswered(t *testing.T) {
	for _, c := range []struct {
		replyTo, kind, id string
		want              []bool // of a message in one part, of the first part, of the second
	}{
		{"", KindGroup, "5", []bool{true, true, false}},
		{"", KindChannel, "5", []bool{true, true, false}},
		{"", KindDM, "5", []bool{false, false, false}},
		{ReplyToOff, KindGroup, "5", []bool{false, false, false}},
		{ReplyToFirst, KindDM, "5", []bool{true, true, false}},
		{ReplyToAll, KindDM, "5", []bool{true, true, true}},
		{ReplyToAll, KindGroup, "", []bool{false, false, false}},
	} {
		rc := ReplyContext{"kind": json.RawMessage(`"` + c.kind + `"`), "reply_to_id": json.RawMessage(`"` + c.id + `"`)}
		for part, want := range c.want {
			if got := (Definition{ReplyTo: c.replyTo}).Names(Message{Part: part, ReplyContext: rc}); got != want {
				t.Errorf("reply_to %q in a %s, part %d: %v", c.replyTo, c.kind, part, got)
			}
		}
	}
}
