package turn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
)

var update = flag.Bool("update", false, "write the recorded rows")

// recorded is a journal as a process left it that was killed in a tool, and what the
// next process makes of it.
type recorded struct {
	Left, Finished []json.RawMessage // steps
	Says           []json.RawMessage
	Asked          []model.Message // of the last round
	Fate, Text     string
	Log            []string
}

// everyClass returns with a call of each class, in the order given by name, then text.
func everyClass(names ...string) func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
	arguments := map[string]string{"no_such_tool": `{"a":1}`, "message_send": `{"text":"half way <b>"}`, "bash_exec": `{"command":"echo <x>"}`}
	return func(_ context.Context, round, _ int, _ model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
		if round > 1 {
			emit(model.Delta{Text: "done"})
			return say("done")
		}
		r := model.Response{Text: "looking", FinishReason: model.FinishToolCalls}
		for n, name := range names {
			r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: fmt.Sprint("c", n+1), Name: name, Arguments: json.RawMessage(arguments[name])})
		}
		return r, modelcall.Try{}
	}
}

// The rows that an earlier build left at a kill inside a tool are read, and finished, with
// the bytes which that build wrote: an unfinished read and an unfinished message are made
// again, an unfinished command is in doubt. The files in testdata/resume were written by
// the build before the tool port; -update replaces them.
func TestResumesRecordedRows(t *testing.T) {
	for name, calls := range map[string][]string{
		"read":             {"no_such_tool", "bash_exec"},
		"idempotent":       {"message_send", "bash_exec"},
		"effect":           {"bash_exec", "message_send", "bash_exec"},
		"message-off":      {"message_send", "bash_exec"},
		"effect-after-end": {"bash_exec", "bash_exec"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "resume", name+".json")
			var want recorded
			if data, err := os.ReadFile(path); err == nil {
				if err := json.Unmarshal(data, &want); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				at := 1
				if name == "effect-after-end" {
					at = 2
				}
				first := newBench(t, "do it")
				first.journal.config.MessageTool = name != "message-off"
				first.llm.reply = everyClass(calls...)
				fault.SetPoint(func(label string) {
					if label == "T5.after" {
						if at--; at == 0 {
							runtime.Goexit()
						}
					}
				})
				_, _, killed := first.life(t.Context())
				fault.SetPoint(nil)
				if !killed {
					t.Fatal("not killed")
				}
				got := recorded{Left: rows(t, first.journal.steps)}
				if *update {
					want.Left = got.Left
				}
				second := newBench(t, "do it")
				second.journal.config.MessageTool = first.journal.config.GetMessageTool()
				second.llm.reply, second.journal.crashes = everyClass(calls...), 1
				second.journal.page = 1 // RELIABILITY 5: an answer has as many steps as it has room for
				for _, data := range want.Left {
					s := &pb.Step{}
					if err := protojson.Unmarshal(data, s); err != nil {
						t.Fatal(err)
					}
					second.journal.steps = append(second.journal.steps, s)
				}
				if _, err := second.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				fin := second.journal.fin
				got.Finished, got.Fate, got.Text, got.Log = rows(t, second.journal.steps), fin.GetFate().String(), fin.GetText(), second.journal.logs
				got.Asked = second.llm.last.Messages
				for _, s := range second.journal.says {
					got.Says = append(got.Says, plain(t, s))
				}
				if *update {
					data, err := json.MarshalIndent(got, "", "\t")
					if err == nil {
						err = os.WriteFile(path, append(data, '\n'), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if diff := cmp.Diff(compact(t, want), compact(t, got)); diff != "" {
					t.Errorf("-recorded +now\n%s", diff)
				}
			})
		})
	}
}

// rows are steps as JSON. The hash of a request is left out: it is of a prompt with a
// directory of this test. So is what the build that wrote the files did not know.
func rows(t *testing.T, steps []*pb.Step) (out []json.RawMessage) {
	for _, s := range steps {
		s = proto.CloneOf(s)
		s.Summary, s.IsError = "", false
		if s.GetKind() == pb.StepKind_STEP_KIND_MODEL {
			s.RequestSha256 = nil
		}
		out = append(out, plain(t, s))
	}
	return out
}

func plain(t *testing.T, m proto.Message) json.RawMessage {
	t.Helper()
	data, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func compact(t *testing.T, r recorded) string {
	t.Helper()
	var b bytes.Buffer
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Indent(&b, data, "", "\t")
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
