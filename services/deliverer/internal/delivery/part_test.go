package delivery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf16"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
)

// parted is a text of three paragraphs, of which no two fit into a message.
func parted() (text string, parts []string) {
	for _, c := range []string{"a", "b", "c"} {
		parts = append(parts, strings.Repeat(c, 60))
	}
	return strings.Join(parts, "\n\n"), parts
}

func (s *sink) keys() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		out = append(out, m.Key)
	}
	return out
}

// TestParts is S1-49: a reply longer than its channel takes is one delivery and
// several messages in their order, each under a key of its own.
func TestParts(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		text, parts := parted()
		w.journal.maxChars = 64
		w.journal.push("threads/a", text, "short")
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if got := w.sink.texts(); !slices.Equal(got, append(parts, "short")) {
			t.Fatalf("sent %q", got)
		}
		want := []string{"threads/a/1:part:1-62", "threads/a/1:part:2-124", "threads/a/1:part:3-184", "threads/a/2"}
		if got := w.sink.keys(); !slices.Equal(got, want) {
			t.Errorf("keys %v", got)
		}
		for i, m := range w.sink.got {
			if m.MaybeDuplicate || m.Attempt != 1 || m.More != (i < 2) || m.Part != []int{1, 2, 3, 0}[i] {
				t.Errorf("message %d: %+v", i, m)
			}
		}
		if begins, _, finishes := w.journal.calls(); begins != 1 || finishes != 4 {
			t.Errorf("%d begins, %d finishes", begins, finishes)
		}
		if log := w.journal.row("threads/a", 1).logs; len(log) != 3 || log[1] != "outbound: channel=xgw event=1 outcome=part ms=0 part=2" {
			t.Errorf("log %q", log)
		}
	})
}

// A part that was recorded never leaves again; the one under way when its sender
// died leaves again, under the same key and flagged. A bound that was changed
// meanwhile cuts only what is left.
func TestKilledBetweenParts(t *testing.T) {
	for name, bound := range map[string]int{"the same bound": 64, "a wider one": 1000, "none": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &sink{}, func(t *testing.T, w *world) {
				j, sends := w.journal, 0
				text, parts := parted()
				fault.SetPoint(func(label string) {
					if label != "D2.after" {
						return
					}
					if sends++; sends == 2 {
						j.set(func() { j.token = 2 })
					}
				})
				defer fault.SetPoint(nil)
				j.maxChars = 64
				j.push("threads/a", text)
				w.agent.Wake("threads/a")
				if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
					t.Fatalf("ended with %v", err)
				}
				w.pool.Wait()
				if r := j.row("threads/a", 1); r.state != "sending" || r.parts != 1 || r.reach != 62 {
					t.Errorf("%+v", r)
				}
				j.set(func() { j.maxChars = bound })
				w.start()
				w.agent.Wake("threads/a")
				<-w.ended
				rest, same := []string{parts[1], parts[2]}, true
				if bound != 64 {
					rest, same = []string{parts[1] + "\n\n" + parts[2]}, false
				}
				if got := w.sink.texts(); !slices.Equal(got[2:], rest) {
					t.Fatalf("sent %q after it", got[2:])
				}
				again := w.sink.got[2]
				if k := w.sink.keys(); (k[1] == k[2]) != same || !again.MaybeDuplicate || again.Part != 2 {
					t.Errorf("keys %v, %+v", k, again)
				}
				if same && w.sink.got[3].MaybeDuplicate {
					t.Error("a part that nobody had sent is flagged")
				}
				if r := j.row("threads/a", 1); r.state != "sent" {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// A part that fails is tried again, and those before it are not.
func TestPartFails(t *testing.T) {
	s := &sink{answer: func(n int, _ channel.Message) error {
		if n == 1 || n == 2 {
			return failed
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		text, parts := parted()
		w.journal.maxChars = 64
		w.journal.push("threads/a", text)
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if got := s.texts(); !slices.Equal(got, []string{parts[0], parts[1], parts[1], parts[1], parts[2]}) {
			t.Errorf("sent %q", got)
		}
		if m := s.got[4]; m.Attempt != 1 || m.MaybeDuplicate {
			t.Errorf("behind it: %+v", m)
		}
	})
}

// TestPartsOfAPlatform is S1-49: a text is cut by the limit of its platform, in its units, and by
// that of the settings where it is smaller. A part that is too long as it is rendered is cut again,
// and what follows it is what it left.
func TestPartsOfAPlatform(t *testing.T) {
	text, parts := parted()
	smile := strings.Repeat("😀", 50)
	doubled := func(s string) int { return 2 * len(s) }
	for name, c := range map[string]struct {
		limit    channel.Limit
		maxChars int
		text     string
		want     []string
	}{
		"fits":          {channel.Limit{Max: 184}, 0, text, []string{text}},
		"too long":      {channel.Limit{Max: 183}, 0, text, []string{parts[0] + "\n\n" + parts[1], parts[2]}},
		"by settings":   {channel.Limit{Max: 1000}, 64, text, parts},
		"not by them":   {channel.Limit{Max: 64}, 1000, text, parts},
		"UTF-16":        {channel.Limit{Max: 80, Units: utf16.RuneLen}, 0, smile, []string{smile[:160], smile[160:]}},
		"rendered":      {channel.Limit{Max: 184, Size: doubled}, 0, text, parts},
		"rendered fits": {channel.Limit{Max: 368, Size: doubled}, 0, text, []string{text}},
		"space behind":  {channel.Limit{Max: 64}, 0, "x" + strings.Repeat(" \n", 64), []string{"x"}},
		"never fits":    {channel.Limit{Max: 100, Size: func(string) int { return 101 }}, 0, text, parts},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &sink{limit: c.limit}, func(t *testing.T, w *world) {
				w.journal.maxChars = c.maxChars
				w.journal.push("threads/a", c.text)
				w.agent.Wake("threads/a")
				if err := <-w.ended; err != nil {
					t.Fatal(err)
				}
				if got := w.sink.texts(); !slices.Equal(got, c.want) {
					t.Errorf("sent %q", got)
				}
			})
		})
	}
}

// Another agent and a person at the console get the whole of it.
func TestNoPartsInside(t *testing.T) {
	w := target{name: channel.NameInternal, message: channel.Message{Text: strings.Repeat("x", 200)}}
	if got := w.part(Due{MaxChars: 64}); len(got.message.Text) != 200 || got.rest != nil {
		t.Errorf("%+v", got)
	}
}

// carrier is a sink that takes files.
type carrier struct{ *sink }

func (carrier) Documents() channel.DocumentLimit { return channel.DocumentLimit{Max: 100, Caption: 50} }

// S3-52: a file goes with a short text, behind the parts of a longer one, and is a line of the text where the channel
// takes no file of its size. A part that was recorded never leaves again.
func TestDocuments(t *testing.T) {
	const content = `{"text":%q,"attachments":[{"type":"file","mime":"text/plain","name":"a.txt","size":%d,"media":"sha256:%064d"}],` +
		`"reply_context":{"channel_type":"telegram","channel_id":"c","session_id":"s","peer_id":"p"}}`
	long := strings.Repeat("a", 60)
	for _, c := range []struct {
		name, text string
		size       int
		carries    bool
		kill       string // the text whose send is the last of its process
		want       []string
	}{
		{"with its text", "here", 5, true, "", []string{"here+a.txt"}},
		{"without a text", "", 5, true, "", []string{"+a.txt"}},
		{"behind a text that is no caption", long, 5, true, "", []string{long, "+a.txt"}},
		{"killed before the file", long, 5, true, long, []string{long, long + "?", "+a.txt"}},
		{"too large", "here", 500, true, "", []string{"here\n[the file a.txt has 500 bytes; at most 100 can be sent here]"}},
		{"a channel without files", "here", 5, false, "", []string{"here\n[the file a.txt, 5 bytes, cannot be sent here]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sink{limit: channel.Limit{Max: 100}}
			synctest.Test(t, func(t *testing.T) {
				j := newMemory()
				w := newWorld(t, j, s)
				if c.carries {
					w.carry(carrier{s})
				}
				if c.kill != "" {
					once := false
					s.answer = func(_ int, m channel.Message) error {
						if m.Text == c.kill && !once {
							once = true
							return failed
						}
						return nil
					}
				}
				j.pushContent("threads/a", fmt.Sprintf(content, c.text, c.size, 0))
				w.agent.Wake("threads/a")
				if err := <-w.ended; err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range s.got {
					text := m.Text
					if m.MaybeDuplicate {
						text += "?"
					}
					if m.Document != nil {
						text += "+" + m.Document.Name
						if m.More {
							t.Error("more follows the file")
						}
					}
					got = append(got, text)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("sent %q, want %q", got, c.want)
				}
			})
		})
	}
}
