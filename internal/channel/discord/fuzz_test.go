package discord

import (
	"encoding/json"
	"strings"
	"testing"
)

// S10: no event breaks the account, and each message that is taken can be told from others, has a
// conversation, an author and something to show.
func FuzzEvent(f *testing.F) {
	for kind, doc := range map[string]string{
		"MESSAGE_CREATE": `{"id":"5","channel_id":"10","guild_id":"81","author":{"id":"501","username":"ann"},"content":"<@1> hi","mentions":[{"id":"1","username":"bot"}],
			"timestamp":"2026-11-28T10:00:00.123000+00:00","message_reference":{"message_id":"4"},"referenced_message":{"content":"x","author":{"id":"1"}},
			"attachments":[{"filename":"a","content_type":"image/png","size":1,"url":"https://cdn.discordapp.com/a"}]}`,
		"MESSAGE_UPDATE":     `{"id":"5","channel_id":"10","author":{"id":"501"},"content":"x","edited_timestamp":"2026-11-28T10:00:00+00:00"}`,
		"INTERACTION_CREATE": `{"id":"1","token":"x","type":3,"channel_id":"20","user":{"id":"501"},"message":{"id":"5"},"data":{"custom_id":"/stop"}}`,
		"READY":              `{"session_id":null}`,
	} {
		f.Add(kind, doc, 11)
	}
	f.Fuzz(func(t *testing.T, kind, doc string, typ int) {
		s := &stream{reader: newReader(&client{api: publicAPI}, "", user{ID: "1"})}
		var at struct {
			ID string `json:"channel_id"`
		}
		if json.Unmarshal([]byte(doc), &at) == nil {
			s.places[at.ID] = place{Type: typ, Parent: "7"}
		}
		if !json.Valid([]byte(doc)) || s.places[at.ID].Type != typ {
			return
		}
		e, ok := s.event(frame{Type: kind, Data: json.RawMessage(doc)})
		if !ok {
			return
		}
		where, err := s.place(t.Context(), e.ChannelID)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := s.say(e, where)
		if u.Text == "" && len(u.Attachments) == 0 || !isID(u.SessionID) || !isID(u.PeerID) || !isID(u.MessageID) || u.PeerID == "1" && kind != "INTERACTION_CREATE" {
			t.Errorf("%s %q became %+v", kind, doc, u)
		}
		if !strings.HasPrefix(u.Key, "discord:1:"+u.SessionID+":") || u.Kind != kindDM && u.Kind != kindGroup && u.Kind != kindChannel || len(u.Text) > maxText {
			t.Errorf("%s %q became %+v", kind, doc, u)
		}
	})
}
