package telegram

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

func numbered(ids ...int64) (list []update) {
	for _, id := range ids {
		list = append(list, update{ID: id})
	}
	return list
}

// What is kept counts for the same API and for less than a week: then the platform numbers at random.
func TestKept(t *testing.T) {
	now := time.Unix(1764201600, 0)
	stamp := func(age time.Duration) int64 { return now.Add(-age).Unix() }
	for kept, want := range map[string]int64{
		"": 0,
		fmt.Sprintf("9002 %d here", stamp(time.Hour)):      9002,
		fmt.Sprintf("9002 %d there", stamp(time.Hour)):     0,
		fmt.Sprintf("9002 %d here", stamp(6*24*time.Hour)): 0,
		fmt.Sprintf("x %d here", stamp(time.Hour)):         0,
		"9002 here": 0,
	} {
		w := newWindow(kept, "here", now, func(string) {})
		if got := w.ask(now); got != want {
			t.Errorf("%q: %d, want %d", kept, got, want)
		}
	}
	w := newWindow("", "here", now, func(string) {})
	list, n := w.take(numbered(5), now)
	w.stored(list[0].ID, n)
	if got := w.ask(now.Add(staleAfter - 1)); got != 6 {
		t.Errorf("before a week: %d", got)
	}
	if got := w.ask(now.Add(staleAfter)); got != 0 {
		t.Errorf("after a week: %d", got)
	}
	w.take(numbered(4), now.Add(staleAfter))
	if got := w.ask(now.Add(staleAfter)); got != 4 {
		t.Errorf("numbered again: %d", got)
	}
	w.stored(5, n) // of the old numbering
	if got := w.ask(now.Add(staleAfter)); got != 4 {
		t.Errorf("a late update of the old numbering: %d", got)
	}
}

// In any order in which updates are stored, the offset is the first that is not, each is taken
// once, and what is kept never runs ahead.
func TestWindowInAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		stored := map[int64]bool{}
		last := int64(0)
		w := newWindow("", "here", time.Now(), func(value string) {
			var offset int64
			if _, err := fmt.Sscan(value, &offset); err != nil || offset <= last {
				t.Fatalf("kept %q after %d: %v", value, last, err)
			}
			for id := int64(1); id < offset; id++ {
				if !stored[id] {
					t.Fatalf("seed %d: kept %d, and %d is not stored", seed, offset, id)
				}
			}
			last = offset
		})
		var open []int64
		taken := map[int64]bool{}
		number := 0
		for next := int64(1); len(stored) < 60; {
			if r.IntN(2) == 0 && next <= 60 {
				from := max(w.ask(time.Now()), 1)
				next = min(next+r.Int64N(8), 61)
				var ids []int64 // the platform lists all from the offset on
				for id := from; id < next; id++ {
					ids = append(ids, id)
				}
				fresh, n := w.take(numbered(ids...), time.Now())
				number = n
				for _, u := range fresh {
					if taken[u.ID] {
						t.Fatalf("seed %d: %d taken twice", seed, u.ID)
					}
					taken[u.ID] = true
					open = append(open, u.ID)
				}
			}
			if len(open) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(open))
				id := open[i]
				open = append(open[:i:i], open[i+1:]...)
				stored[id] = true
				w.stored(id, number)
			}
		}
		if last != 61 || len(w.open)+len(w.done) != 0 {
			t.Errorf("seed %d: kept %d, %d open, %d done", seed, last, len(w.open), len(w.done))
		}
	}
}

type nowhere struct{}

func (nowhere) Connected(string, string) error                 { return nil }
func (nowhere) Ready() error                                   { return nil }
func (nowhere) Cursor(context.Context, string) (string, error) { return "", nil }
func (nowhere) Ignored()                                       {}

func (nowhere) Save(context.Context, string, string) error { return nil }

func (nowhere) Keep(string, string)                                           {}
func (nowhere) Take(_ context.Context, _ channel.Update, stored func()) error { stored(); return nil }

// A request that gets no answer for 90 s is given up, with its connection, also where its answer
// began; a send is after 30 s.
func TestNoAnswer(t *testing.T) {
	for _, begun := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"ok\":"} {
		synctest.Test(t, func(t *testing.T) {
			forgetRates()
			var closed atomic.Int32
			transport := channel.NewTransport()
			transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer closed.Add(1)
					in := bufio.NewReader(there)
					for {
						req, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, req.Body)
						if strings.HasSuffix(req.URL.Path, "/getMe") {
							body := `{"ok":true,"result":{"id":1,"username":"x"}}`
							_, _ = fmt.Fprintf(there, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
							continue
						}
						_, _ = io.WriteString(there, begun)
					}
				}()
				return here, nil
			}
			d := channel.Definition{Token: "env:T", API: "http://127.0.0.1:1"}
			c := newClient("tg", d, func(context.Context, string) (string, error) { return "1:x", nil }, transport)
			began := time.Now()
			err := c.down(receive(t.Context(), c, nowhere{}))
			if e := channel.AsError(err); e.Class != channel.Unavailable || e.Reason != "" || !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took != pollLimit {
				t.Errorf("given up after %v", took)
			}
			began = time.Now()
			_, err = (&sender{client: c}).Send(t.Context(), channel.Message{Text: "x", ReplyContext: channel.ReplyContext{"session_id": json.RawMessage("1")}})
			if e := channel.AsError(err); e.Class != channel.Unavailable || !e.InDoubt || time.Since(began) != callLimit {
				t.Errorf("%+v after %v", e, time.Since(began))
			}
			transport.CloseIdleConnections()
			synctest.Wait()
			if closed.Load() != 2 {
				t.Errorf("%d connections are closed", closed.Load())
			}
		})
	}
}

// FuzzUpdate: whatever the platform sends becomes a message with a key, a conversation and a peer,
// or nothing.
func FuzzUpdate(f *testing.F) {
	f.Add(`{"update_id":1,"message":{"message_id":5,"from":{"id":1},"chat":{"id":1,"type":"private"},"text":"/x@me","entities":[{"type":"bot_command","offset":0,"length":5}]}}`)
	f.Add(`{"update_id":1,"callback_query":{"id":"1","from":{"id":1},"data":"x","message":{"message_id":5,"chat":{"id":1,"type":"group"}}}}`)
	f.Add(`{"update_id":1,"edited_channel_post":{"message_id":5,"chat":{"id":-1,"type":"channel"},"caption":"x","photo":[{"file_id":"x","width":-1,"height":9223372036854775807}]}}`)
	c := newClient("tg", channel.Definition{}, nil, nil)
	f.Fuzz(func(t *testing.T, doc string) {
		u, err := readUpdate(json.RawMessage(doc))
		if err != nil {
			return
		}
		m, ok := c.read(u, me{4242, "me"}, "1:x")
		if ok && (!strings.HasPrefix(m.Key, "telegram:4242:") || m.SessionID == "" || m.PeerID == "" || m.MessageID == "" || m.Kind == "" || m.Text == "" && len(m.Attachments) == 0) {
			t.Errorf("%+v", m)
		}
	})
}
