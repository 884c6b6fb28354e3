package batch_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/testing/vectors"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// collected are the ids that the turn of the first message of a conversation gets as members, and how many messages
// are beyond the cap.
func collected(t *testing.T, sources []string, q *pb.OpenBatchResponse) (members []int64, short int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{sources: sources, queue: q}
		in.push(slices.Repeat([]string{"t"}, len(sources))...)
		b := newBatch(in, 4, func(_ context.Context, id int64, _ string, s turn.Slot) error {
			if id == 1 {
				list, n := s.Collect()
				for _, m := range list {
					members = append(members, m.GetInboxId())
				}
				short = n
			}
			return nil
		})
		if err := b.Work(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	})
	return members, short
}

// S1-23: what is merged, by mode, cap and speaker.
func TestCollect(t *testing.T) {
	const collect = pb.QueueMode_QUEUE_MODE_COLLECT
	bob := func(n int) []string { return slices.Repeat([]string{"bob"}, n) }
	for _, c := range []struct {
		sources        []string
		mode           pb.QueueMode
		cap            int32
		members, short int
	}{
		{bob(5), 0, 0, 0, 0},
		{bob(5), 0, 5, 0, 0},
		{bob(5), 0, 4, 1, 1},
		{bob(5), 0, 1, 4, 4},
		{bob(5), collect, 0, 4, 0},
		{bob(5), collect, 5, 4, 0},
		{bob(5), collect, 2, 4, 3},
		{bob(50), collect, 0, 20, 0},
		{bob(50), collect, 30, 39, 20},
		{append(bob(3), "ann"), collect, 0, 2, 0},
		{append(bob(3), "ann", "bob", "bob"), 0, 1, 2, 2}, // the third is answered in full
		{append([]string{"bob", "ann"}, bob(5)...), 0, 1, 0, 0},
	} {
		if members, short := collected(t, c.sources, &pb.OpenBatchResponse{QueueMode: c.mode, QueueCap: c.cap}); len(members) != c.members || short != c.short {
			t.Errorf("%d of %s, cap %d: %d members, %d short; want %d, %d", len(c.sources), c.mode, c.cap, len(members), short, c.members, c.short)
		}
	}
}

// S1-23: a turn begins when no message has come for the debounce, and after ten of them in any case.
func TestDebounce(t *testing.T) {
	for _, c := range []struct {
		messages int
		want     time.Duration
	}{{1, time.Second}, {4, 3*500*time.Millisecond + time.Second}, {40, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			in := &inbox{queue: &pb.OpenBatchResponse{QueueDebounce: durationpb.New(time.Second)}}
			in.push("t")
			begun, start := time.Duration(0), time.Now()
			b := newBatch(in, 4, func(_ context.Context, id int64, _ string, _ turn.Slot) error {
				if id == 1 {
					begun = time.Since(start)
				}
				return nil
			})
			done := make(chan error)
			go func() { done <- b.Work(t.Context(), nil) }()
			for range c.messages - 1 {
				time.Sleep(500 * time.Millisecond)
				in.push("t")
				b.Wake()
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if begun != c.want {
				t.Errorf("%d messages: the turn began after %s, want %s", c.messages, begun, c.want)
			}
		})
	}
}

// different are the recorded vectors that are decided differently here, and why.
var different = map[int]string{
	6:  "a setting has one spelling; the command /queue takes any case",
	8:  "queue.drop has one spelling",
	9:  "queue.drop has one spelling",
	10: "queue.drop has one spelling",
	12: "section 3: the mode is followup, and 500ms with the flavor openclaw",
	13: "section 3: the mode is set for an agent and for a conversation, not for a type of channel",
	14: "section 5.7: the command /queue has a mode and no options",
	16: "section 5.7: the command /queue has a mode and no options, and is no part of a message",
	19: "section 5.7: a colon is no part of a command",
	21: "section 5.7: each message that was too much is one of its own, with 160 characters",
	22: "the registry refuses it where it takes the message in",
	23: "section 5.7: each message that was too much is one of its own, with 160 characters",
	25: "section 5.7: messages that are answered together stay messages of their own",
}

// S1-20, S1-23: the recorded decisions on queues.
func TestQueueVectors(t *testing.T) {
	vectors.Compare(t, "queue", different, decided)
}

// decided is what is decided here.
func decided(t *testing.T, v vectors.Vector) any {
	t.Helper()
	var text string
	_ = json.Unmarshal(v.Input, &text) // of those that take one
	word := func(key, value string) any {
		if c := config.Default(); config.Lookup(key).Parse(&c, value) != "" {
			return nil
		}
		return value
	}
	switch v.Fn {
	case "normalizeQueueMode":
		return word("queue.mode", text)
	case "normalizeQueueDropPolicy":
		return word("queue.drop", text)
	case "resolveQueueSettings":
		q := config.Default().Queue
		return map[string]any{"mode": q.Mode, "debounceMs": q.Debounce.Milliseconds(), "cap": q.Cap, "dropPolicy": q.Drop}
	case "extractQueueDirective":
		c, ok := chatcommand.Parse(text, chatcommand.Rules{})
		out := map[string]any{"cleaned": "", "queueReset": c.Args == "default", "hasDirective": ok, "hasOptions": false}
		if !ok {
			out["cleaned"] = text
		} else if c.Args != "" && c.Args != "default" {
			out["rawMode"] = c.Args
			if mode := word("queue.mode", c.Args); mode != nil {
				out["queueMode"] = mode
			}
		}
		return out
	case "applyQueueDropPolicy":
		var in struct {
			Cap   int32
			Items []string
		}
		if err := json.Unmarshal(v.Input, &in); err != nil {
			t.Fatal(err)
		}
		_, short := collected(t, slices.Repeat([]string{"bob"}, len(in.Items)+1), &pb.OpenBatchResponse{QueueCap: in.Cap})
		return map[string]any{"accept": true, "remaining": in.Items[short:], "droppedCount": short, "summaryLines": []string{}}
	case "hasCrossChannelItems":
		var from []string
		if err := json.Unmarshal(v.Input, &from); err != nil {
			t.Fatal(err)
		}
		members, _ := collected(t, from, &pb.OpenBatchResponse{QueueMode: pb.QueueMode_QUEUE_MODE_COLLECT})
		return len(members) < len(from)-1
	}
	return nil
}
