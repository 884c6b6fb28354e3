//go:build proof

package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/session"
)

// kept are the files of the agent's sessions.
func (d *desk) kept(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(d.Home, "agents", "a1", "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// The four faults of a provider, through pai, one after the other: a busy one is
// tried again, a refused key is on record and the next message is answered, a
// prompt that is too long is digested and sent again, a stream that was seen to
// break off is asked again (S0-86, S0-87, S0-113, S0-119).
func TestPaiFaultsInOrder(t *testing.T) {
	d := withPai(t)
	d.Set(t, "a1", "retry.max_attempts", "6")
	r := &recorder{script: d.script}
	for n := range 3 {
		d.script.Push(modeltest.Say("noted"))
		d.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("fact-%d %s", n, strings.Repeat("word ", 1500)))
	}

	busy := modeltest.Fail(429, "slow down")
	d.script.Push(busy, busy, busy, modeltest.Say("retried"))
	turn := d.Say(t, "a1", server.Peer("bob"), "one")
	want(t, d.World, turn, replied, "retried")
	if turn.GetErrorAttempts() != 0 {
		t.Errorf("429: %d tries were counted, a provider that limits the rate is waited for", turn.GetErrorAttempts())
	}

	d.script.Push(modeltest.Fail(401, "Incorrect API key provided"))
	want(t, d.World, d.Say(t, "a1", server.Peer("bob"), "two"), dead, "")
	if errs := d.Events(t, "a1", bobThread, "subtype = 'error'"); len(errs) != 1 || !strings.Contains(errs[0].GetContent(), "401") {
		t.Errorf("401: records %v", errs)
	}

	r.reset()
	d.script.Push(modeltest.Fail(400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."),
		modeltest.Say("What holds: fact-0 fact-1 fact-2 and that the key was refused once."), modeltest.Say("compacted"))
	turn = d.Say(t, "a1", server.Peer("bob"), "three")
	want(t, d.World, turn, replied, "compacted")
	digests, replies := r.digests(), r.replies()
	if len(digests) != 1 || len(replies) != 2 || turn.GetErrorAttempts() != 0 {
		t.Fatalf("context length: %d digests, %d calls, told %v", len(digests), len(replies), turn)
	}
	if got := modeltest.Facts(digests[0].Text()); !slices.Equal(got, []string{"fact-0", "fact-1", "fact-2"}) || len(digests[0].Tools) != 0 {
		t.Errorf("the digest was made of %q, with %d tools", got, len(digests[0].Tools))
	}
	if len(replies[1].Text()) >= len(replies[0].Text()) || !strings.Contains(replies[1].Messages[0].Content, "fact-0 fact-1 fact-2") || len(replies[1].Tools) != 1 {
		t.Errorf("the second call has %d bytes of %d", len(replies[1].Text()), len(replies[0].Text()))
	}
	if got := journal(turn); len(got) != 3 || got[0] != "pai:1 done" || got[2] != "pai:2 done" || turn.GetSteps()[1].GetKind() != registrypb.StepKind_STEP_KIND_COMPACTION {
		t.Errorf("context length: journal %q", got)
	}

	d.script.Push(modeltest.Step{Text: []string{"echo: "}, Cut: true}, modeltest.Say("whole"))
	turn = d.Say(t, "a1", server.Peer("bob"), "four")
	want(t, d.World, turn, replied, "whole")
	if turn.GetErrorAttempts() != 1 || len(journal(turn)) != 2 {
		t.Errorf("cut: %v", turn)
	}
	if got := d.kept(t); len(got) != 1 {
		t.Errorf("sessions hold %q", got)
	}
}

// A refused length is answered by a digest, then by half; then it stands. The call
// for a digest has the contract's words and no round of tools, in a session of its
// own (S0-114, S1-57, S1-58).
func TestPaiRefusesTheLength(t *testing.T) {
	for _, c := range []struct{ refusals, calls int }{{1, 2}, {2, 3}, {5, 3}} {
		t.Run(fmt.Sprint(c.refusals), func(t *testing.T) {
			left := 0
			d := withPai(t, modeltest.Step{Repeat: true, Answer: func(q modeltest.Chat) modeltest.Step {
				if q.WantsDigest() {
					return modeltest.FactModel().Answer(q)
				}
				if left--; left >= 0 {
					return modeltest.Fail(400, "This model's maximum context length is 8192 tokens.")
				}
				return modeltest.Say("ok")
			}})
			for n := range 4 {
				d.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("fact-%d %s", n, strings.Repeat("word ", 1500)))
			}
			before := len(d.calls(t))
			r := &recorder{script: d.script}
			r.reset()
			left = c.refusals
			turn := d.Say(t, "a1", server.Peer("bob"), "and now?")
			if len(r.replies()) != c.calls || len(r.digests()) != 1 {
				t.Fatalf("%d calls and %d digests", len(r.replies()), len(r.digests()))
			}
			for n, q := range r.replies()[1:] {
				if len(q.Text()) >= len(r.replies()[n].Text()) {
					t.Errorf("call %d is not smaller than the one before", n+2)
				}
			}
			if c.refusals < 3 {
				want(t, d.World, turn, replied, "ok")
			} else if want(t, d.World, turn, dead, ""); !strings.Contains(turn.GetError(), "prompt too long (400)") {
				t.Errorf("told %q", turn.GetError())
			}
			aside := d.calls(t)[before+1]
			file := session.Path(filepath.Join(d.Home, "agents", "a1", "sessions"), bobThread+"/aside")
			if !slices.Equal(aside, []string{
				"chat", "--stream", "--json", "--session", file, "--system-file", file + ".system",
				"--provider", "fake", "--model", "m9", "--input-file", file + ".input", "--max-turns", "1",
			}) {
				t.Errorf("called with %q", aside)
			}
			if text := memoryFile(t, d.World, "a1", bobFile); len(modeltest.Facts(text)) != 4 {
				t.Errorf("memory holds %q", text)
			}
			if got := d.kept(t); len(got) != 1 {
				t.Errorf("sessions hold %q", got)
			}
		})
	}
}

// Of an agent that may try once only, an answer that looks broken off is taken: it
// is more than nothing.
func TestPaiLastTry(t *testing.T) {
	d := withPai(t, modeltest.Step{Text: []string{"echo: "}, Cut: true})
	d.Set(t, "a1", "retry.max_attempts", "1")
	want(t, d.World, d.Say(t, "a1", server.Peer("bob"), "hi"), replied, "echo: ")
	if log := agentLog(t, d.World, "a1"); !strings.Contains(log, "it may be cut") {
		t.Errorf("agent.log says nothing of it:\n%s", log)
	}
}
