package peer

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxPart is the size in bytes at which a file of lines is continued in the next, so
// that no conversation has to fit into memory.
const maxPart = 4 << 20

// archive writes lines into the parts of a tar.
type archive struct {
	tar  *tar.Writer
	now  time.Time
	name string
	part int
	buf  []byte
	refs map[string]bool // media that events and steps refer to, by hash
}

// Export writes what was found as a tar:
//
//	peer.json                      who, and which threads and files
//	inbox/events-1.jsonl           events, a line each, as in events.jsonl
//	threads/.../events-1.jsonl
//	turns-1.jsonl                  what became of each message, with every step
//	deliveries-1.jsonl             what became of each reply
//	approvals-1.jsonl              what people were asked, and who answered
//	questions-1.jsonl              what the agent asked the peer, with the answers
//	pairing-1.jsonl                what was decided about the peer as a person of an account
//	media/<sha256>                 images and other media that events and steps refer to
//	memory/*.md, sessions/*.jsonl  as they are
func (f *Data) Export(ctx context.Context, c Deps, w io.Writer) error {
	a := &archive{tar: tar.NewWriter(w), now: time.Now().UTC().Truncate(time.Second), refs: map[string]bool{}}
	var threads []string
	for _, p := range f.Threads {
		threads = append(threads, p.ID)
	}
	err := a.file("peer.json", map[string]any{
		"agent": f.agent.ID, "channel_type": f.Peer.ChannelType, "channel_id": f.Peer.ChannelID, "peer_id": f.Peer.PeerID,
		"exported_at": a.now, "threads": threads, "files": f.Files,
	})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, Deps, *archive) error{f.events, f.turns, f.deliveries, f.approvals, f.questions, f.pairing, f.media, f.copies} {
		if err := step(ctx, c, a); err != nil {
			return err
		}
	}
	return a.tar.Close()
}

func (f *Data) events(ctx context.Context, c Deps, a *archive) error {
	for _, p := range f.Threads {
		a.begin(p.ID + "/events")
		r, after := store.Ref{Agent: f.agent.ID, Thread: p.ID}, int64(0)
		for more := true; more; {
			got, err := c.Store.Read(ctx, r, store.Query{After: after, Limit: page})
			if err != nil {
				return c.Fault(f.agent.ID, p.ID, err)
			}
			for _, e := range got.Events {
				after = e.ID
				if _, mine := slices.BinarySearch(p.Events, e.ID); !mine {
					continue
				}
				store.FindMediaRefs([]byte(e.Content), a.refer)
				if err := a.line(e.AppendLine(nil)); err != nil {
					return err
				}
			}
			more = got.More && len(got.Events) > 0
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Data) turns(ctx context.Context, c Deps, a *archive) error {
	a.begin("turns")
	for _, p := range f.Threads {
		if p.ID != thread.Inbox {
			continue
		}
		for _, id := range p.Events {
			t, err := c.Store.Turn(ctx, f.agent.ID, store.TurnQuery{InboxID: id, Route: wire.ThreadOf})
			if err != nil {
				return c.Fault(f.agent.ID, p.ID, err)
			}
			var steps []map[string]any
			for _, s := range t.Steps {
				store.FindMediaRefs(s.Result, a.refer)
				steps = append(steps, map[string]any{
					"kind": s.Kind, "state": s.State, "name": s.Name, "arguments": s.Arguments, "result": string(s.Result), "recorded_at": s.RecordedAt,
				})
			}
			var attempts []map[string]any
			for _, one := range t.Attempts {
				attempts = append(attempts, map[string]any{"at": one.At, "class": one.Class, "error": one.Error})
			}
			if err := a.value(map[string]any{
				"inbox_id": t.InboxID, "thread": t.Thread, "state": t.State, "fate": t.Fate, "source": t.Source, "error": t.Error,
				"queued_at": t.QueuedAt, "finished_at": t.FinishedAt, "attempts": attempts, "steps": steps,
			}); err != nil {
				return err
			}
		}
	}
	return a.flush()
}

func (f *Data) deliveries(ctx context.Context, c Deps, a *archive) error {
	a.begin("deliveries")
	for _, p := range f.Threads {
		if p.ID == thread.Inbox {
			continue
		}
		for after := int64(0); ; {
			rows, err := c.Store.ListDeliveries(ctx, store.Ref{Agent: f.agent.ID, Thread: p.ID}, "", after, page)
			if err != nil {
				return c.Fault(f.agent.ID, p.ID, err)
			}
			for _, d := range rows {
				after = d.EventID
				if _, mine := slices.BinarySearch(p.Events, d.EventID); !mine {
					continue
				}
				if err := a.value(map[string]any{
					"thread": p.ID, "event_id": d.EventID, "state": d.State, "attempts": d.Attempts, "channel": d.Channel,
					"provider_id": d.ProviderID, "error": d.Error, "created_at": d.CreatedAt, "updated_at": d.UpdatedAt,
				}); err != nil {
					return err
				}
			}
			if len(rows) < page {
				break
			}
		}
	}
	return a.flush()
}

func (f *Data) approvals(ctx context.Context, c Deps, a *archive) error {
	a.begin("approvals")
	mine := f.records()
	for after := ""; ; {
		list, err := c.Approvals.Approvals(ctx, after, f.agent.ID, "", page)
		if err != nil {
			return c.Fault(f.agent.ID, "", err)
		}
		for _, q := range list {
			after = q.ID
			if !mine.Asked(q.Thread, q.Key) {
				continue
			}
			if err := a.value(map[string]any{
				"id": q.ID, "thread_id": q.Thread, "key": q.Key, "kind": q.Kind, "tool": q.Tool, "summary": q.Summary, "command": q.Command, "cwd": q.Cwd, "reason": q.Reason,
				"state": q.State, "decision": q.Decision, "by": q.By, "requested_at": q.Requested.UTC(), "expires_at": q.Expires.UTC(),
			}); err != nil {
				return err
			}
		}
		if len(list) < page {
			return a.flush()
		}
	}
}

func (f *Data) questions(ctx context.Context, c Deps, a *archive) error {
	a.begin("questions")
	mine := f.records()
	for after := ""; ; {
		rows, err := c.Questions.Questions(ctx, after, f.agent.ID, "", page)
		if err != nil {
			return c.Fault(f.agent.ID, thread.Inbox, err)
		}
		for _, q := range rows {
			if after = q.ID; !mine.Asked(q.Thread, q.Key) {
				continue
			}
			if err := a.value(map[string]any{
				"thread": q.Thread, "text": q.Text, "options": q.Options, "state": q.State, "answer": q.Answer, "by": q.By, "requested_at": q.Requested, "ended_at": q.Ended,
			}); err != nil {
				return err
			}
		}
		if len(rows) < page {
			return a.flush()
		}
	}
}

func (f *Data) pairing(ctx context.Context, c Deps, a *archive) error {
	a.begin("pairing")
	mine := f.records()
	p, found, err := c.Pairings.Pairing(ctx, mine.Account, mine.Peer)
	if err != nil {
		return c.Fault(f.agent.ID, "", err)
	}
	if !found {
		return nil
	}
	if err := a.value(map[string]any{
		"account": p.Account, "type": p.Type, "peer_id": p.Peer, "peer_name": p.Name, "state": p.State, "owner": p.Owner, "by": p.By, "at": p.At.UTC(), "messages": p.Messages,
	}); err != nil {
		return err
	}
	return a.flush()
}

// media writes those that are still there.
func (f *Data) media(ctx context.Context, c Deps, a *archive) error {
	for _, sum := range slices.Sorted(maps.Keys(a.refs)) {
		m, err := c.Media.Store.MediaInfo(ctx, f.agent.ID, sum)
		var data []byte
		if err == nil {
			err = store.EachPiece(ctx, c.Media.Store, f.agent.ID, m, func(piece []byte) error {
				data = append(data, piece...)
				return nil
			})
		}
		if err == nil {
			err = a.bytes("media/"+sum, data)
		}
		if err != nil && !errors.Is(err, store.ErrNoMedia) {
			return c.Fault(f.agent.ID, thread.Inbox, err)
		}
	}
	return nil
}

func (f *Data) copies(ctx context.Context, c Deps, a *archive) error {
	for _, n := range f.Files {
		b, err := c.Agents.OwnFile(ctx, f.agent.ID, n)
		if err != nil {
			return err
		}
		if err := a.bytes(n, b); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) refer(sum string) { a.refs[sum] = true }

func (a *archive) begin(name string) { a.name, a.part = name, 0 }

func (a *archive) value(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.line(b)
}

func (a *archive) line(b []byte) error {
	a.buf = append(append(a.buf, b...), '\n')
	if len(a.buf) < maxPart {
		return nil
	}
	return a.flush()
}

func (a *archive) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	a.part++
	err := a.bytes(fmt.Sprintf("%s-%d.jsonl", a.name, a.part), a.buf)
	a.buf = a.buf[:0]
	return err
}

func (a *archive) file(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return a.bytes(name, append(b, '\n'))
}

func (a *archive) bytes(name string, b []byte) error {
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(b)), Mode: 0o600, ModTime: a.now, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := a.tar.Write(b)
	return err
}
