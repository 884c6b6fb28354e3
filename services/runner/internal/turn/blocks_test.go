package turn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/run"
)

// prose is a text of paragraphs, sentences and code.
func prose(chance *rand.Rand) string {
	var s strings.Builder
	for n := range 1 + chance.IntN(40) {
		switch chance.IntN(6) {
		case 0:
			s.WriteString("\n\n")
		case 1:
			fmt.Fprintf(&s, "\n```go\n%s\n```\n", strings.Repeat("code()\n", 1+chance.IntN(12)))
		default:
			fmt.Fprintf(&s, "Sentence %d has %s. ", n, strings.Repeat("words ", chance.IntN(8)))
		}
	}
	return "Answer." + strings.TrimRight(s.String(), " \n")
}

// writer is a model that writes an answer in random pieces, with pauses, and sometimes breaks off. What it
// is shown of its answer it does not write again.
type writer struct {
	t      *testing.T
	chance *rand.Rand
	text   string
	breaks int // times that it still breaks off
}

func (w *writer) reply(ctx context.Context, _, _ int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
	rest := w.text
	if n := len(req.Messages); req.Messages[n-1].Role == model.RoleSystem {
		before := req.Messages[n-2]
		if before.Role != model.RoleAssistant || !strings.HasPrefix(w.text, before.Text) {
			w.t.Errorf("the model is shown %q, which is no beginning of its answer", before.Text)
		}
		rest = w.text[len(before.Text):]
	}
	if strings.TrimSpace(rest) == "" {
		emit(model.Delta{Text: "NO_REPLY"})
		return say("NO_REPLY")
	}
	for left := rest; left != ""; {
		if w.breaks > 0 && w.chance.IntN(30) == 0 {
			w.breaks--
			return fails(model.Unavailable, time.Millisecond)
		}
		n := min(1+w.chance.IntN(30), len(left))
		emit(model.Delta{Text: left[:n]})
		left = left[n:]
		pause := time.Millisecond
		if w.chance.IntN(15) == 0 {
			pause = 3 * time.Second
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fails(model.Canceled, 0)
		}
	}
	return say(rest)
}

// S2-49, S4-43, S1-49 under P1: the runner is killed at random instants of an answer that is sent in blocks,
// and the model breaks off. Blocks and reply are, joined, the answer; each block is said once, and none is too
// long; the history holds the answer once.
func TestBlocksUnderKills(t *testing.T) {
	kills, blocks, silent := 0, 0, 0
	for seed := range uint64(120) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 7))
			b := newBench(t, "write")
			most := int32(64 + chance.IntN(100))
			b.journal.config.Blocks = &pb.ReplyBlocks{
				MinChars: 1 + chance.Int32N(most), MaxChars: most, Break: []string{"paragraph", "newline", "sentence"}[chance.IntN(3)], Idle: durationpb.New(time.Second),
			}
			w := &writer{t: t, chance: rand.New(rand.NewPCG(seed, 8)), text: prose(chance), breaks: chance.IntN(4)}
			b.llm.reply = w.reply
			left := chance.IntN(6)
			die := func(odds int) bool {
				if left == 0 || chance.IntN(odds) > 0 {
					return false
				}
				left--
				kills++
				return true
			}
			b.journal.kill = func(call string, _ int) (before, after bool) {
				if call == "begin" {
					return false, false
				}
				before = die(6)
				return before, !before && die(6)
			}
			fault.SetPoint(func(label string) {
				if label == "B1" && die(4) {
					runtime.Goexit()
				}
			})
			defer fault.SetPoint(nil)
			for killed := true; killed; {
				var err error
				if _, err, killed = b.life(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			raw, seen := "", map[string]bool{}
			for _, s := range b.journal.steps {
				if s.GetKind() == pb.StepKind_STEP_KIND_BLOCK {
					var r struct{ Text string }
					if err := json.Unmarshal(s.GetResult(), &r); err != nil || s.GetKey() != fmt.Sprintf("block:1:%d", len(seen)+1) {
						t.Errorf("%s: %v", s.GetKey(), err)
					}
					raw += r.Text
					seen[s.GetKey()] = true
				}
			}
			for _, said := range b.journal.says {
				if !seen[said.GetStepKey()] || utf8.RuneCountInString(said.GetText()) > int(most) || strings.Count(said.GetText(), "```")%2 != 0 {
					t.Errorf("%s says %q", said.GetStepKey(), said.GetText())
				}
				delete(seen, said.GetStepKey()) // each once
			}
			blocks += len(b.journal.says)
			fin, rest := b.journal.fin, strings.TrimPrefix(w.text, raw)
			if !strings.HasPrefix(w.text, raw) || len(seen) > 0 {
				t.Errorf("the blocks are %q, of %q; not said: %v", raw, w.text, seen)
			}
			switch {
			case fin.GetFate() == pb.Fate_FATE_SILENT:
				silent++
				if strings.TrimSpace(rest) != "" {
					t.Errorf("silent, and %q was not said", rest)
				}
			case fin.GetFate() != pb.Fate_FATE_REPLIED || !strings.HasSuffix(fin.GetText(), strings.TrimSpace(rest)) || len(fin.GetText()) > len(rest)+10:
				t.Errorf("%v %q, want %q", fin.GetFate(), fin.GetText(), rest)
			}
			var a struct {
				Text     string
				InBlocks int `json:"in_blocks"`
			}
			if err := json.Unmarshal(b.journal.step("model:1").GetResult(), &a); err != nil || a.Text != w.text || a.InBlocks != len(raw) {
				t.Errorf("the answer has %q, %d bytes in blocks, %v", a.Text, a.InBlocks, err)
			}
			var shown strings.Builder
			for _, i := range b.items {
				if i.Kind == run.Assistant {
					shown.WriteString(i.Text)
				}
			}
			if !strings.HasSuffix(shown.String(), w.text) { // before it, what a restart takes back
				t.Errorf("clients are shown %q", shown.String())
			}
			if t.Failed() {
				t.Fatalf("seed %d, %v", seed, b.journal.config.GetBlocks())
			}
		})
	}
	t.Logf("%d kills, %d blocks, %d answers were completely in blocks", kills, blocks, silent)
	if kills < 100 || blocks < 300 {
		t.Error("too few")
	}
}

// S4-43: all of an answer is in blocks when the process is killed. The model is asked for the rest and says that there is
// none: the reader gets no word of that.
func TestNothingIsMissing(t *testing.T) {
	for _, text := range []string{"That is all.", "That is all.\n"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "write")
			b.journal.config.Blocks = &pb.ReplyBlocks{MinChars: 5, MaxChars: 100, Break: "sentence", Idle: durationpb.New(time.Second)}
			b.llm.reply = (&writer{t: t, chance: rand.New(rand.NewPCG(1, 1)), text: text}).slowly
			killed := false
			fault.SetPoint(func(label string) {
				if label == "B1" && !killed {
					killed = true
					runtime.Goexit()
				}
			})
			defer fault.SetPoint(nil)
			for again := true; again; {
				var err error
				if _, err, again = b.life(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if fin := b.journal.fin; !killed || len(b.journal.says) != 1 || fin.GetFate() != pb.Fate_FATE_SILENT || fin.GetText() != "" {
				t.Errorf("%q: %v, %v %q", text, b.journal.says, fin.GetFate(), fin.GetText())
			}
		})
	}
}

// slowly writes the rest at once, and ends a while later.
func (w *writer) slowly(ctx context.Context, _, _ int, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
	if req.Messages[len(req.Messages)-1].Role == model.RoleSystem {
		emit(model.Delta{Text: "NO_REPLY"})
		return say("NO_REPLY")
	}
	emit(model.Delta{Text: w.text})
	select {
	case <-time.After(time.Minute):
		return say(w.text)
	case <-ctx.Done():
		return fails(model.Canceled, 0)
	}
}
