package thread_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/thread"
)

// S10: a key of any event leads back to its id, is one printable line, and is the
// key of no event that differs in a byte, even where the same bytes stand in
// another column.
func FuzzKey(f *testing.F) {
	f.Add("0198-uuid", int64(5), "2026-01-01T00:00:00.000Z", "self", "message", "", false, "{}")
	f.Add("u", int64(1), "", "external:t:m:dm:a:a", "record", "toolcall", true, "\x00\xff")
	f.Add("", int64(-1), "a:b", ":", ":", ":", true, ":")
	f.Fuzz(func(t *testing.T, uuid string, id int64, created, source, kind, subtype string, has bool, content string) {
		e := thread.Event{ID: id, CreatedAt: created, Source: source, Type: kind, Content: content}
		if has {
			e.Subtype = &subtype
		}
		key := e.Key(uuid)
		if got, ok := thread.KeyID(key); !strings.Contains(uuid, ":") && (ok != (id > 0) || id > 0 && got != id) {
			t.Errorf("the id in %q is %d, %v and not %d", key, got, ok, id)
		}
		if tail, ok := strings.CutPrefix(key, uuid+":"+strconv.FormatInt(id, 10)+":"); !ok || len(tail) != 16 || strings.Trim(tail, "0123456789abcdef") != "" {
			t.Errorf("the key is %q", key)
		}
		for name, change := range map[string]func(o *thread.Event){
			"id":                 func(o *thread.Event) { o.ID++ },
			"time":               func(o *thread.Event) { o.CreatedAt += "x" },
			"byte moved forward": func(o *thread.Event) { o.Source, o.Type = o.Source+"m", strings.TrimPrefix(o.Type, "m") },
			"byte moved back":    func(o *thread.Event) { o.Source, o.CreatedAt = strings.TrimSuffix(o.Source, "a"), o.CreatedAt+"a" },
			"content":            func(o *thread.Event) { o.Content += " " },
			"subtype": func(o *thread.Event) {
				if o.Subtype = nil; !has {
					o.Subtype = new(string)
				}
			},
		} {
			other := e
			change(&other)
			if other.Key(uuid) == key || other.DeliveryKey(uuid) == e.DeliveryKey(uuid) || other.Hash([]byte("p")) == e.Hash([]byte("p")) {
				t.Errorf("another %s gives the same key %q", name, key)
			}
		}
	})
}

// S10: whatever is taken for a key says a positive id that stands in it.
func FuzzKeyID(f *testing.F) {
	for _, s := range []string{"u:5:0123456789abcdef", "", "::", "u:-1:x", "u:+1:x", "u:9223372036854775808:x", "u:1:2:3", "u:01:x", "u: 1:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		id, ok := thread.KeyID(key)
		if !ok {
			return
		}
		p := strings.Split(key, ":")
		if n, err := strconv.ParseInt(p[1], 10, 64); len(p) != 3 || err != nil || n != id || id <= 0 {
			t.Errorf("%q says %d", key, id)
		}
	})
}

// S10: the line of any event is one line of JSON, and what it says is the event,
// but for bytes that are no UTF-8.
func FuzzLine(f *testing.F) {
	f.Add(int64(1), "2026-01-01T00:00:00.000Z", "self", "message", "x", true, "{\"text\":\"a\\nb\"}")
	f.Add(int64(2), "", "a\u2028b", "\x7f", "", false, "\xed\xa0\x80\x00\x1b\"\\")
	f.Fuzz(func(t *testing.T, id int64, created, source, kind, subtype string, has bool, content string) {
		e := thread.Event{ID: id, CreatedAt: created, Source: source, Type: kind, Content: content}
		if has {
			e.Subtype = &subtype
		}
		line := e.AppendLine([]byte("before"))
		line = line[len("before"):]
		if strings.ContainsAny(string(line), "\n\r\x00") || !utf8.Valid(line) {
			t.Errorf("no line: %q", line)
		}
		var back struct {
			ID        int64   `json:"id"`
			CreatedAt string  `json:"created_at"`
			Source    string  `json:"source"`
			Type      string  `json:"type"`
			Subtype   *string `json:"subtype"`
			Content   string  `json:"content"`
		}
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		valid := func(s string) string { return string([]rune(s)) } // each bad byte is one U+FFFD
		if back.ID != id || back.CreatedAt != valid(created) || back.Source != valid(source) || back.Type != valid(kind) || back.Content != valid(content) ||
			(back.Subtype != nil) != has || has && *back.Subtype != valid(subtype) {
			t.Errorf("%+v is written as %s", e, line)
		}
	})
}
