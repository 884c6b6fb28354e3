package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// A8: wait and stream print for programs what the calls of the runner answer: the class of
// an error, the tokens, the parts of the end.
func TestRunForPrograms(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	for text, want := range map[string]struct {
		code                           int
		status, phase, errorCode, kind string
	}{
		"say: hi":    {0, "ok", "end", "", "text"},
		"fail: auth": {1, "error", "error", "model", "error"},
	} {
		key := w.Say(t, "a1", world.Peer("bob"), text).GetKey()
		run := func(verb string) []byte {
			t.Helper()
			var out, errs bytes.Buffer
			args := []string{"--runner", "unix://" + filepath.Join(w.Home, "run/runner0.sock"), "run", verb, "a1", key, "--json"}
			code := Main(args, strings.NewReader(""), &out, &errs, func(name string) string { return map[string]string{"THECLAW_HOME": w.Home}[name] })
			if code != want.code || errs.Len() > 0 {
				t.Errorf("%s %s: exit code %d, %s", verb, text, code, &errs)
			}
			return out.Bytes()
		}
		type part struct{ Kind, Text string }
		var end struct {
			Status, Error, Suggestion string
			ErrorCode                 string `json:"error_code"`
			InputTokens               *int64 `json:"input_tokens"`
			OutputTokens              *int64 `json:"output_tokens"`
			Payloads                  []part
		}
		failed := want.code == 1
		if err := json.Unmarshal(run("wait"), &end); err != nil || end.Status != want.status || end.ErrorCode != want.errorCode || (end.Error != "") != failed || (end.Suggestion != "") != failed ||
			end.InputTokens == nil || end.OutputTokens == nil || len(end.Payloads) == 0 || end.Payloads[len(end.Payloads)-1].Kind != want.kind {
			t.Errorf("wait %s: %v, %+v", text, err, end)
		}
		items := bytes.Split(bytes.TrimSpace(run("stream")), []byte("\n"))
		var last struct {
			Stream, Phase string
			ErrorCode     string `json:"error_code"`
			InputTokens   *int64 `json:"input_tokens"`
			OutputTokens  *int64 `json:"output_tokens"`
			Payloads      []part
		}
		if err := json.Unmarshal(items[len(items)-1], &last); err != nil || last.Stream != "lifecycle" || last.Phase != want.phase || last.ErrorCode != want.errorCode ||
			last.InputTokens == nil || last.OutputTokens == nil || len(last.Payloads) != len(end.Payloads) {
			t.Errorf("stream %s: %v, %+v", text, err, last)
		}
	}
}
