package anthropic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
)

// canned answers every request with the same bytes.
type canned []byte

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c)), Request: req}, nil
}

// S10: whatever a provider streams, the driver returns a classified error or
// an answer that a turn can store and run.
func FuzzStream(f *testing.F) {
	event := func(data string) string { return "event: x\ndata: " + data + "\n\n" }
	begin := event(`{"type":"message_start","message":{"id":"1","model":"m","usage":{"input_tokens":1}}}`)
	stop := event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`) + event(`{"type":"message_stop"}`)
	f.Add([]byte(begin + event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`) + event("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xff\"}}") + stop))
	f.Add([]byte(begin + event("{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"\xff\",\"name\":\"\xff\",\"input\":{}}}") + event("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"[\"}}") + stop))
	f.Add([]byte(begin + event("{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\xff\",\"signature\":\"\xff\"}}") + stop))
	f.Add([]byte(event(`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		d, err := anthropic.New(anthropic.Config{Name: "p", BaseURL: "http://p.test", Client: &http.Client{Transport: canned(stream)}})
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
		if b := []byte(fmt.Sprintf("%s", got.Replay) + fmt.Sprint(got)); !utf8.Valid(b) || got.Usage.Input < 0 || got.Usage.Output < 0 {
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
