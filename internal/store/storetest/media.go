package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// picture is media of n bytes.
func picture(n int) (store.MediaInfo, []byte) {
	data := bytes.Repeat([]byte("picture "), n/8+1)[:n]
	sum := sha256.Sum256(data)
	return store.MediaInfo{SHA256: hex.EncodeToString(sum[:]), MIME: "image/png", Name: "x.png", Size: int64(n)}, data
}

// put stores media under the lease of the runner.
func (f *fixture) put(t *testing.T, n int) store.MediaInfo {
	t.Helper()
	m, data := picture(n)
	ok(t, f.PutMedia(t.Context(), "a", &runner, m, data))
	return m
}

// media are those that an agent has.
func (f *fixture) media(t *testing.T, agent string) (out []string) {
	t.Helper()
	list, err := f.ListMedia(t.Context(), agent, time.Now().Add(time.Hour), "", 100)
	ok(t, err)
	for _, m := range list {
		out = append(out, m.SHA256)
	}
	return out
}

// refs are the hashes that a thread refers to, once each.
func (f *fixture) refs(t *testing.T, r store.Ref, since time.Time) (out []string) {
	t.Helper()
	ok(t, f.MediaRefs(t.Context(), r, since, func(sum string) { out = append(out, sum) }))
	slices.Sort(out)
	return slices.Compact(out)
}

var media = map[string]func(*testing.T, *fixture){
	"what is written is read": func(t *testing.T, f *fixture) {
		for _, n := range []int{1, store.MediaPiece, store.MediaPiece + 1, 3 * store.MediaPiece} {
			m := f.put(t, n)
			got, err := f.MediaInfo(t.Context(), "a", m.SHA256)
			ok(t, err)
			if got.At.IsZero() {
				t.Error("it was written at no time")
			}
			got.At = time.Time{}
			equal(t, "media", got, m)
			_, data := picture(n)
			var read []byte
			for i := int64(0); len(read) < n; i++ {
				piece, err := f.MediaPiece(t.Context(), "a", m.SHA256, i)
				ok(t, err)
				read = append(read, piece...)
			}
			if !bytes.Equal(read, data) {
				t.Errorf("%d bytes: others were read", n)
			}
			_, err = f.MediaPiece(t.Context(), "a", m.SHA256, int64(n+store.MediaPiece-1)/store.MediaPiece)
			is(t, err, store.ErrNoMedia)
			_, err = f.MediaInfo(t.Context(), "b", m.SHA256) // of another agent
			is(t, err, store.ErrNoMedia)
			_, err = f.MediaPiece(t.Context(), "b", m.SHA256, 0)
			is(t, err, store.ErrNoMedia)
		}
		equal(t, "media", len(f.media(t, "a")), 4)
		equal(t, "media of the other agent", len(f.media(t, "b")), 0)
	},
	"media of a hash are one, and its first name stays": func(t *testing.T, f *fixture) {
		m, data := picture(100)
		ok(t, f.PutMedia(t.Context(), "a", nil, m, data))
		other := m
		other.Name, other.MIME = "y.png", "image/gif"
		ok(t, f.PutMedia(t.Context(), "a", nil, other, data))
		got, err := f.MediaInfo(t.Context(), "a", m.SHA256)
		ok(t, err)
		equal(t, "name and type", []string{got.Name, got.MIME}, []string{"x.png", "image/png"})
	},
	"a lost lease writes nothing": func(t *testing.T, f *fixture) {
		f.revoke(runner.Resource, runner.Token)
		m, data := picture(100)
		is(t, f.PutMedia(t.Context(), "a", &runner, m, data), store.ErrLeaseLost)
		equal(t, "media", len(f.media(t, "a")), 0)
	},
	"lists go on behind a hash": func(t *testing.T, f *fixture) {
		for n := range 5 {
			f.put(t, n+1)
		}
		var got []string
		for after := ""; ; {
			list, err := f.ListMedia(t.Context(), "a", time.Now().Add(time.Hour), after, 2)
			ok(t, err)
			if len(list) == 0 {
				break
			}
			for _, m := range list {
				after = m.SHA256
				got = append(got, after)
			}
		}
		if !slices.IsSorted(got) || len(got) != 5 {
			t.Errorf("listed %v", got)
		}
	},
	"what was written again is not removed": func(t *testing.T, f *fixture) {
		old, again := f.put(t, 1), f.put(t, 2)
		f.pass(t, 2*store.MediaGrace)
		f.put(t, 2)
		fresh := f.put(t, 3)
		before := time.Now().Add(-store.MediaGrace)
		list, err := f.ListMedia(t.Context(), "a", before, "", 100)
		ok(t, err)
		equal(t, "old media", len(list), 1)
		got, err := f.RemoveMedia(t.Context(), "a", []string{old.SHA256, again.SHA256, fresh.SHA256}, before)
		ok(t, err)
		equal(t, "removed", got, store.Share{Gone: 1, Bytes: 1})
		_, err = f.MediaPiece(t.Context(), "a", old.SHA256, 0)
		is(t, err, store.ErrNoMedia)
		want := []string{again.SHA256, fresh.SHA256}
		slices.Sort(want)
		equal(t, "left", f.media(t, "a"), want)
		_, err = f.MediaPiece(t.Context(), "a", again.SHA256, 0)
		ok(t, err)
	},
	"steps and events refer to media": func(t *testing.T, f *fixture) {
		inStep, inEvent := f.put(t, 1), f.put(t, 2)
		p, _ := f.claim(t, fmt.Sprintf(`{"text":"look","attachments":[{"media":"sha256:%s"}]}`, inEvent.SHA256))
		s := step(1, store.StepTool, "tool:1:1", store.ClassRead, store.StepDone)
		s.Result = fmt.Appendf(nil, `{"text":"a picture","images":[{"media":"sha256:%s"}]}`, inStep.SHA256)
		_, err := f.Record(t.Context(), threadA, runner, store.Record{Key: p.Key, Steps: []store.Step{s}})
		ok(t, err)
		equal(t, "references of the inbox", f.refs(t, inboxA, time.Time{}), []string{inEvent.SHA256})
		later := time.Now().Add(time.Hour)
		equal(t, "references of an older message that waits", f.refs(t, inboxA, later), []string{inEvent.SHA256})
		want := []string{inStep.SHA256, inEvent.SHA256}
		slices.Sort(want)
		equal(t, "references of the conversation", f.refs(t, threadA, time.Time{}), want)
		equal(t, "references of its steps", f.refs(t, threadA, later), []string{inStep.SHA256})
		_, err = f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: 1, Key: p.Key, Thread: threadA.Thread, Fate: store.FateDead, Error: "why"})
		ok(t, err)
		equal(t, "references of an older dead letter", f.refs(t, inboxA, later), []string{inEvent.SHA256})
		_, _, err = f.ResolveTurn(t.Context(), "a", 1, "dropped")
		ok(t, err)
		equal(t, "references of older events", len(f.refs(t, inboxA, later)), 0)
	},
}
