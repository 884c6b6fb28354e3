package feed

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Ten thousand pieces in two seconds are as many messages as there are beats, in
// order and with nothing left out.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Pieces
		s := &Source{Send: func(m tea.Msg) { got = append(got, m.(Pieces)) }}
		items := make(chan Item, ahead)
		go func() {
			defer close(items)
			for i := range 10_000 {
				if i == 5_000 {
					items <- Item{What: Began, CallID: "c", Tool: "bash_exec"}
				}
				items <- Item{What: Spoke, Text: "word "}
				time.Sleep(200 * time.Microsecond)
			}
		}()
		s.pass(7, items)
		if len(got) > 60 {
			t.Errorf("%d messages in 2 s", len(got))
		}
		var said strings.Builder
		tools := 0
		for _, p := range got {
			for _, i := range p.Items {
				said.WriteString(i.Text)
				if i.What == Began {
					tools++
					if n := said.Len(); n != 25_000 {
						t.Errorf("the tool comes after %d bytes", n)
					}
				}
			}
		}
		if said.Len() != 50_000 || tools != 1 {
			t.Errorf("%d bytes and %d tools", said.Len(), tools)
		}
	})
}

// What the runner calls its items, and what is not shown.
func TestItems(t *testing.T) {
	for _, c := range []struct {
		stream runner.RunStream
		phase  string
		after  uint64
		want   What
	}{
		{runner.RunStream_RUN_STREAM_ASSISTANT, "delta", 0, Spoke},
		{runner.RunStream_RUN_STREAM_REASONING, "delta", 0, Thought},
		{runner.RunStream_RUN_STREAM_TOOL, "start", 0, Began},
		{runner.RunStream_RUN_STREAM_TOOL, "update", 0, Output},
		{runner.RunStream_RUN_STREAM_TOOL, "result", 0, Ended},
		{runner.RunStream_RUN_STREAM_TOOL, "end", 0, Ended}, // of an earlier build
		{runner.RunStream_RUN_STREAM_LIFECYCLE, "start", 0, 0},
		{runner.RunStream_RUN_STREAM_LIFECYCLE, "start", 9, Again},
		{runner.RunStream_RUN_STREAM_LIFECYCLE, "restart", 0, Again},
		{runner.RunStream_RUN_STREAM_LIFECYCLE, "end", 9, 0},
		{runner.RunStream_RUN_STREAM_COMPACTION, "start", 0, Digest},
		{runner.RunStream_RUN_STREAM_COMPACTION, "end", 9, Digested},
		{runner.RunStream_RUN_STREAM_COMPACTION, "", 0, 0},
	} {
		got, ok := item(&runner.StreamRunResponse{Stream: c.stream, Phase: c.phase}, c.after)
		if got.What != c.want || ok != (c.want != 0) {
			t.Errorf("%s %s after %d: %d, want %d", c.stream, c.phase, c.after, got.What, c.want)
		}
	}
}
