package drivertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// canned answers every request with the same bytes.
type canned []byte

// RoundTrip implements [http.RoundTripper].
func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c)), Request: req}, nil
}

// Fuzz checks S10: whatever a provider streams, the driver returns a classified error or an
// answer that a turn can store and run.
func Fuzz(f *testing.F, newDriver func(*http.Client) (model.Driver, error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d, err := newDriver(&http.Client{Transport: canned(stream)})
		if err != nil {
			t.Fatal(err)
		}
		streamed := 0
		got, err := d.Generate(t.Context(), model.Request{Model: "m"}, func(d model.Delta) { streamed += len(d.Text) })
		if err != nil {
			if e := model.AsError(err); e.Class == 0 || e.Message == "" {
				t.Errorf("unclassified: %#v", err)
			}
			return
		}
		if got.FinishReason == "" || len(got.Text) != streamed {
			t.Errorf("answer %+v after %d streamed bytes", got, streamed)
		}
		// F1: and nothing of it keeps it out of the journal.
		if b := []byte(string(got.Replay) + fmt.Sprint(got)); !utf8.Valid(b) || got.Usage.Input < 0 || got.Usage.Output < 0 {
			t.Errorf("answer %q", b)
		}
		ids := map[string]bool{}
		for _, c := range got.ToolCalls {
			var object map[string]any
			if c.ID == "" || ids[c.ID] || c.Name == "" || json.Unmarshal(c.Arguments, &object) != nil || object == nil {
				t.Errorf("bad call %+v", c)
			}
			ids[c.ID] = true
		}
	})
}
