package telegram_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

// S2-18, S2-16: what the platform's updates become; the forms are those of its documentation.
func TestMapping(t *testing.T) {
	const (
		bobFrom = `"from":{"id":1207,"is_bot":false,"first_name":"Bob","last_name":"Baker","username":"bob","language_code":"en"}`
		inDM    = `"chat":{"id":1207,"first_name":"Bob","type":"private"},"date":1764201600`
		inGroup = `"chat":{"id":-42,"title":"Friends","type":"group"},"date":1764201600`
		inForum = `"chat":{"id":-10042,"title":"Forum","type":"supergroup","is_forum":true},"date":1764201600`
	)
	at := time.Unix(1764201600, 0)
	dm := channel.Update{Key: "telegram:4242:1207:5", Kind: "dm", SessionID: "1207", PeerID: "1207", PeerName: "Bob Baker", MessageID: "5", Text: "hi", SentAt: at}
	inAGroup := channel.Update{Key: "telegram:4242:-42:5", Kind: "group", SessionID: "-42", PeerID: "1207", PeerName: "Bob Baker", MessageID: "5", SentAt: at}
	with := func(u channel.Update, change func(*channel.Update)) *channel.Update {
		change(&u)
		return &u
	}
	text := func(s string, mentioned bool) *channel.Update {
		return with(inAGroup, func(u *channel.Update) { u.Text, u.Mentioned = s, mentioned })
	}
	for _, c := range []struct {
		name, doc string
		want      *channel.Update // nil: acknowledged and counted, and nothing else
	}{
		{"a person", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"text":"hi"}`, &dm},
		{"an edit", `"edited_message":{"message_id":5,` + bobFrom + `,` + inDM + `,"edit_date":1764201660,"text":"hi!"}`, with(dm, func(u *channel.Update) {
			u.Key, u.EditOf, u.Text, u.SentAt = "telegram:4242:1207:5:e1764201660-3iartlyukwwjd", "telegram:4242:1207:5", "hi!", at.Add(time.Minute)
		})},
		{"a message passed on", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"forward_origin":{"type":"user","date":1764201000,"sender_user":{"id":9,"is_bot":false,"first_name":"A"}},"text":"hi"}`, with(dm, func(u *channel.Update) { u.Forwarded = true })},
		{"of a person who hides, with a picture", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"forward_sender_name":"A","forward_date":1764201000,"caption":"hi","photo":[{"file_id":"L","width":9,"height":9}]}`, with(dm, func(u *channel.Update) {
			u.Forwarded, u.Attachments = true, []channel.Attachment{{Type: "image", MIME: "image/jpeg", Name: "photo.jpg"}}
		})},
		{"of a person, in the older form", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"forward_from":{"id":9,"is_bot":false,"first_name":"A"},"forward_date":1764201000,"text":"hi"}`, with(dm, func(u *channel.Update) { u.Forwarded = true })},
		{"of a channel, in the older form", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"forward_from_chat":{"id":-1009,"title":"News","type":"channel"},"text":"hi"}`, with(dm, func(u *channel.Update) { u.Forwarded = true })},
		{"a person without a name", `"message":{"message_id":5,"from":{"id":1207,"is_bot":false,"first_name":""},` + inDM + `,"text":"hi"}`, with(dm, func(u *channel.Update) { u.PeerName = "" })},
		{"a group", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"hi"}`, text("hi", false)},
		{"another bot", `"message":{"message_id":5,"from":{"id":77,"is_bot":true,"first_name":"B","username":"b_bot"},` + inGroup + `,"text":"hi"}`, with(inAGroup, func(u *channel.Update) {
			u.Text, u.PeerID, u.PeerName, u.Bot = "hi", "77", "B", true
		})},
		{"an administrator without a name", `"message":{"message_id":5,"from":{"id":1087968824,"is_bot":true,"first_name":"Group","username":"GroupAnonymousBot"},"sender_chat":{"id":-42,"title":"Friends","type":"group"},` + inGroup + `,"text":"hi"}`, with(inAGroup, func(u *channel.Update) {
			u.Text, u.PeerID, u.PeerName = "hi", "-42", "Friends"
		})},
		{"a topic", `"message":{"message_id":5,` + bobFrom + `,` + inForum + `,"message_thread_id":7,"is_topic_message":true,"text":"hi","reply_to_message":{"message_id":7,"from":{"id":4242,"is_bot":true,"first_name":"Demo"},` + inForum + `,"forum_topic_created":{"name":"Plans","icon_color":7322096}}}`, with(inAGroup, func(u *channel.Update) {
			u.Key, u.SessionID, u.Thread, u.Text = "telegram:4242:-10042:5", "-10042", "7", "hi"
		})},
		{"a thread of replies is no topic", `"message":{"message_id":5,` + bobFrom + `,` + inForum + `,"message_thread_id":3,"text":"hi"}`, with(inAGroup, func(u *channel.Update) {
			u.Key, u.SessionID, u.Text = "telegram:4242:-10042:5", "-10042", "hi"
		})},
		{"a post", `"channel_post":{"message_id":5,"sender_chat":{"id":-1009,"title":"News","type":"channel"},"chat":{"id":-1009,"title":"News","type":"channel"},"date":1764201600,"text":"hi"}`, &channel.Update{
			Key: "telegram:4242:-1009:5", Kind: "channel", SessionID: "-1009", PeerID: "-1009", PeerName: "News", MessageID: "5", Text: "hi", SentAt: at,
		}},
		{"an edited post", `"edited_channel_post":{"message_id":5,"chat":{"id":-1009,"title":"News","type":"channel"},"date":1764201600,"edit_date":1764201601,"text":"hi"}`, &channel.Update{
			Key: "telegram:4242:-1009:5:e1764201601-29i798emzwdrc", EditOf: "telegram:4242:-1009:5", Kind: "channel", SessionID: "-1009", PeerID: "-1009", PeerName: "News", MessageID: "5", Text: "hi", SentAt: at.Add(time.Second),
		}},
		{"a mention, of other case", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"hey @Demo_Bot","entities":[{"type":"mention","offset":4,"length":9}]}`, text("hey @Demo_Bot", true)},
		{"a mention behind characters of two units", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"😀😀 @demo_bot","entities":[{"type":"mention","offset":5,"length":9}]}`, text("😀😀 @demo_bot", true)},
		{"the name in a code block", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"@demo_bot","entities":[{"type":"code","offset":0,"length":9}]}`, text("@demo_bot", false)},
		{"a mention of another", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"@demo_bot2","entities":[{"type":"mention","offset":0,"length":10}]}`, text("@demo_bot2", false)},
		{"a mention by id", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"Demo","entities":[{"type":"text_mention","offset":0,"length":4,"user":{"id":4242,"is_bot":true,"first_name":"Demo"}}]}`, text("Demo", true)},
		{"a mention of another by id", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"Demo","entities":[{"type":"text_mention","offset":0,"length":4,"user":{"id":4243,"is_bot":false,"first_name":"Demo"}}]}`, text("Demo", false)},
		{"a command for the bot", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"/new@demo_bot x","entities":[{"type":"bot_command","offset":0,"length":13}]}`, text("/new@demo_bot x", true)},
		{"a command for another bot", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"/new@b_bot","entities":[{"type":"bot_command","offset":0,"length":10}]}`, text("/new@b_bot", false)},
		{"a command for each bot", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"/new","entities":[{"type":"bot_command","offset":0,"length":4}]}`, text("/new", false)},
		{"entities beyond the text", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"hi","entities":[{"type":"mention","offset":9,"length":9},{"type":"mention","offset":1,"length":1000000000},{"type":"mention","offset":-1,"length":1}]}`, text("hi", false)},
		{"a reply to the bot", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"no","reply_to_message":{"message_id":4,"from":{"id":4242,"is_bot":true,"first_name":"Demo"},` + inGroup + `,"text":"yes?"}}`, with(*text("no", false), func(u *channel.Update) {
			u.ReplyTo = &channel.ReplyTo{ID: "4", Text: "yes?", Mine: true}
		})},
		{"a reply to a part of another's picture", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"text":"no","quote":{"text":"part","position":0},"reply_to_message":{"message_id":4,"from":{"id":9,"is_bot":false,"first_name":"A"},` + inGroup + `,"caption":"all of part"}}`, with(*text("no", false), func(u *channel.Update) {
			u.ReplyTo = &channel.ReplyTo{ID: "4", Text: "part"}
		})},
		{"a picture of an album", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"media_group_id":"139","caption":"look @demo_bot","caption_entities":[{"type":"mention","offset":5,"length":9}],"photo":[{"file_id":"S","file_unique_id":"s","file_size":1200,"width":90,"height":67},{"file_id":"L","file_unique_id":"l","file_size":120000,"width":1280,"height":960},{"file_id":"M","file_unique_id":"m","file_size":12000,"width":320,"height":240}]}`, with(*text("look @demo_bot", true), func(u *channel.Update) {
			u.Album, u.Attachments = "139", []channel.Attachment{{Type: "image", MIME: "image/jpeg", Name: "photo.jpg", Size: 120000}}
		})},
		{"a document", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"document":{"file_id":"D","file_unique_id":"d","file_name":"a.pdf","mime_type":"application/pdf","file_size":9}}`, with(dm, func(u *channel.Update) {
			u.Text, u.Attachments = "", []channel.Attachment{{Type: "file", MIME: "application/pdf", Name: "a.pdf", Size: 9}}
		})},
		{"a picture sent as a document", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"document":{"file_id":"D","file_unique_id":"d","file_name":"a.png","mime_type":"image/png"}}`, with(dm, func(u *channel.Update) {
			u.Text, u.Attachments = "", []channel.Attachment{{Type: "image", MIME: "image/png", Name: "a.png"}}
		})},
		{"voice", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"voice":{"file_id":"V","file_unique_id":"v","duration":3,"mime_type":"audio/ogg","file_size":8000}}`, with(dm, func(u *channel.Update) {
			u.Text, u.Attachments = "", []channel.Attachment{{Type: "voice", MIME: "audio/ogg", Name: "voice.ogg", Size: 8000}}
		})},
		{"audio and video", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"audio":{"file_id":"A","duration":3,"file_name":"a.mp3"},"video":{"file_id":"V","width":1,"height":1,"duration":3}}`, with(dm, func(u *channel.Update) {
			u.Text, u.Attachments = "", []channel.Attachment{{Type: "audio", MIME: "audio/mpeg", Name: "a.mp3"}, {Type: "video", MIME: "video/mp4", Name: "video.mp4"}}
		})},
		{"a sticker", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"sticker":{"file_id":"S","emoji":"👍","is_animated":false,"is_video":false,"width":512,"height":512}}`, with(dm, func(u *channel.Update) {
			u.Text, u.Attachments = "👍", []channel.Attachment{{Type: "image", MIME: "image/webp", Name: "sticker.webp"}}
		})},
		{"a place", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"location":{"latitude":52.52,"longitude":13.405}}`, with(dm, func(u *channel.Update) { u.Text = "[location 52.520000, 13.405000]" })},
		{"a place that moved", `"edited_message":{"message_id":5,` + bobFrom + `,` + inDM + `,"edit_date":1764201601,"location":{"latitude":52.52,"longitude":13.405}}`, nil},
		{"a contact", `"message":{"message_id":5,` + bobFrom + `,` + inDM + `,"contact":{"phone_number":"+49","first_name":"Ann"}}`, with(dm, func(u *channel.Update) { u.Text = "[contact Ann, +49]" })},
		{"a button", `"callback_query":{"id":"88",` + bobFrom + `,"chat_instance":"1","data":"/approve ap-7","message":{"message_id":5,"from":{"id":4242,"is_bot":true,"first_name":"Demo"},` + inForum + `,"message_thread_id":7,"is_topic_message":true,"text":"May I?"}}`, &channel.Update{
			Key: "telegram:4242:-10042:q88", Kind: "group", SessionID: "-10042", Thread: "7", PeerID: "1207", PeerName: "Bob Baker", MessageID: "5", Text: "/approve ap-7", Mentioned: true,
		}},
		{"a button of a message that is too old", `"callback_query":{"id":"88",` + bobFrom + `,"data":"/deny","message":{"message_id":5,"chat":{"id":1207,"type":"private"},"date":0}}`, with(dm, func(u *channel.Update) {
			u.Key, u.Text, u.Mentioned, u.SentAt = "telegram:4242:1207:q88", "/deny", true, time.Time{}
		})},
		{"a button elsewhere", `"callback_query":{"id":"88",` + bobFrom + `,"data":"x","inline_message_id":"9"}`, nil},
		{"someone joined", `"message":{"message_id":5,` + bobFrom + `,` + inGroup + `,"new_chat_members":[{"id":9,"is_bot":false,"first_name":"A"}]}`, nil},
		{"the group became a supergroup", `"message":{"message_id":5,` + inGroup + `,"migrate_to_chat_id":-10043}`, nil},
		{"a kind that is not known", `"unknown_kind":{"a":[1,2,{"b":null}]}`, nil},
		{"a message of another form", `"message":{"message_id":"five","chat":[],"text":{}}`, nil},
		{"no chat", `"message":{"message_id":5,"text":"hi"}`, nil},
		{"a kind of chat that is not known", `"message":{"message_id":5,` + bobFrom + `,"chat":{"id":1,"type":"hologram"},"text":"hi"}`, nil},
		{"null", `"message":null`, nil},
		{"deep", `"message":{"message_id":5,"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
			var doc map[string]any
			if err := json.Unmarshal([]byte("{"+c.doc+"}"), &doc); err != nil {
				t.Fatal(err)
			}
			s.Push(doc)
			receive(t, s, in)
			acked(t, s, 1)
			switch {
			case c.want == nil && len(in.Taken) == 0 && in.Skipped == 1:
			case c.want == nil || len(in.Taken) != 1:
				t.Fatalf("counted %d, taken %+v", in.Skipped, in.Taken)
			default:
				if diff := cmp.Diff(*c.want, in.Taken[0], cmpopts.IgnoreFields(channel.Attachment{}, "Open")); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// Edits of one second have keys of their own; one that comes again has its first key.
func TestEditsOfOneSecond(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	for _, text := range []string{"one", "two", "one"} {
		s.Push(map[string]any{"edited_message": map[string]any{
			"message_id": 5, "chat": map[string]any{"id": 1207, "type": "private"}, "from": map[string]any{"id": 1207},
			"date": 1764201600, "edit_date": 1764201660, "text": text,
		}})
	}
	receive(t, s, in)
	acked(t, s, 3)
	if len(in.Taken) != 3 || in.Taken[0].Key == in.Taken[1].Key || in.Taken[0].Key != in.Taken[2].Key || in.Taken[0].EditOf != in.Taken[1].EditOf {
		t.Errorf("taken %+v", in.Taken)
	}
}

// Who pressed a button sees that it was noticed, once the press is stored and not before. The
// people of the fake produce the same forms as the table above has.
func TestPressed(t *testing.T) {
	s, ch := open(t)
	if _, err := ch.Send(t.Context(), channel.Message{Text: "May I?", Buttons: []channel.Button{{Text: "Yes", Command: "/approve ap-7"}}, ReplyContext: to(1207, "dm")}); err != nil {
		t.Fatal(err)
	}
	in := channeltest.NewIntake()
	in.Hold = func(u channel.Update) bool { return strings.HasPrefix(u.Text, "/approve") }
	receive(t, s, in)
	if _, err := s.Press(1207, s.Messages(1207)[0].ID, bob, ""); err != nil {
		t.Fatal(err)
	}
	in.Await(t, "the press", func() bool { return len(in.Waiting) == 1 })
	if calls := s.Calls("answerCallbackQuery"); len(calls) != 0 {
		t.Errorf("confirmed before it was stored: %+v", calls)
	}
	in.Release()
	if err := s.Wait(t.Context(), func() bool { return len(s.Calls("answerCallbackQuery")) == 1 }); err != nil {
		t.Fatal(err)
	}
}

// Files are fetched from the Bot API alone, and never more than the limit of them, whatever size
// is stated.
func TestMedia(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096) // 64 KiB
	for _, c := range []struct {
		name  string
		file  telegramtest.File
		limit int64
		fault telegramtest.Fault
		want  string // of the error; empty: it arrives
	}{
		{"a photo", telegramtest.File{Kind: "photo", Content: content}, 20 << 20, telegramtest.Fault{}, ""},
		{"exactly the limit", telegramtest.File{Kind: "voice", Content: content}, 64 << 10, telegramtest.Fault{}, ""},
		{"a byte more", telegramtest.File{Kind: "document", Content: content}, 64<<10 - 1, telegramtest.Fault{}, "larger than its limit"},
		{"a size that is not true", telegramtest.File{Kind: "document", Content: content, Size: 5}, 64<<10 - 1, telegramtest.Fault{}, "larger than its limit"},
		{"more than the platform hands out", telegramtest.File{Kind: "video", Content: content, Size: 20<<20 + 1}, 50 << 20, telegramtest.Fault{}, "20 MiB"},
		{"the platform is down", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "getFile", Status: 500}, "getFile answered 500"},
		{"its files are down", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "file", Status: 502}, "file answered 502"},
		{"cut", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "file", Cut: telegramtest.CutBefore, Times: -1}, "file: "},
		{"a path to elsewhere", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "getFile", Body: `{"ok":true,"result":{"file_id":"x","file_path":"../../control/heal"}}`}, "no path below"},
		{"an absolute path", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "getFile", Body: `{"ok":true,"result":{"file_id":"x","file_path":"/etc/passwd"}}`}, "no path below"},
		{"another host", telegramtest.File{Kind: "video", Content: content}, 20 << 20, telegramtest.Fault{Method: "getFile", Body: `{"ok":true,"result":{"file_id":"x","file_path":"https://evil.example/x"}}`}, "no path below"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
			s.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "look", Files: []telegramtest.File{c.file}})
			receive(t, s, in)
			in.Await(t, "the message", func() bool { return len(in.Taken) == 1 })
			u := in.Taken[0]
			if u.Text != "look" || len(u.Attachments) != 1 {
				t.Fatalf("%+v", u)
			}
			if c.fault != (telegramtest.Fault{}) {
				s.Fail(c.fault)
			}
			var got []byte
			body, err := u.Attachments[0].Open(t.Context(), c.limit)
			if err == nil {
				got, err = io.ReadAll(body)
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}
			if int64(len(got)) > c.limit {
				t.Errorf("%d bytes", len(got))
			}
			switch {
			case c.want == "" && (err != nil || !bytes.Equal(got, content)):
				t.Errorf("%d bytes, %v", len(got), err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(fmt.Sprint(err), "TEST-token")):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
