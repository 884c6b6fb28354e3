package story_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
	"github.com/theclaw/agents/internal/store/postgres/story"
)

// Lines of many agents in two databases are kept in their order, the newest of each,
// and an agent that is not there costs nobody a line.
func TestStory(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	s, err := shard.Open(t.Context(), []string{c.Database(t), c.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, id := range []string{"alice", "bob", "carol"} {
		if err := agents.New(s).Create(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
	}
	b := story.New(s, func(err error) { t.Error(err) })
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range 5 {
		for _, id := range []string{"alice", "nobody", "bob", "carol"} {
			b.Say(id, story.Line{At: now, Level: "INFO", Text: fmt.Sprint(id, " \x00 ", i)})
		}
	}
	b.Flush()
	for _, id := range []string{"alice", "bob", "carol"} {
		got, err := b.Read(t.Context(), id, 3)
		if err != nil || len(got) != 3 || got[0].Text != id+" \x00 2" || got[2].Text != id+" \x00 4" || !got[2].At.Equal(now) {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	if got, err := b.Read(t.Context(), "nobody", 3); err != nil || len(got) != 0 {
		t.Errorf("nobody: %v, %v", got, err)
	}
	for i := range story.Kept * 3 / 2 {
		b.Say("alice", story.Line{At: now, Level: "INFO", Text: fmt.Sprint(i)})
		if i%1500 == 1499 {
			b.Flush()
		}
	}
	b.Flush()
	got, err := b.Read(t.Context(), "alice", 100_000)
	if err != nil || len(got) < story.Kept || len(got) > story.Kept*6/5 || got[len(got)-1].Text != "14999" {
		t.Errorf("%d lines stay, %v", len(got), err)
	}
}
