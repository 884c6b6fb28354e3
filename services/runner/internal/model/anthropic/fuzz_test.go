package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/drivertest"
)

// S10: see drivertest.Fuzz.
func FuzzStream(f *testing.F) {
	event := func(data string) string { return "event: x\ndata: " + data + "\n\n" }
	begin := event(`{"type":"message_start","message":{"id":"1","model":"m","usage":{"input_tokens":1}}}`)
	stop := event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`) + event(`{"type":"message_stop"}`)
	drivertest.Fuzz(f, func(c *http.Client) (model.Driver, error) {
		return anthropic.New(anthropic.Config{Name: "p", BaseURL: "http://p.test", Client: c})
	},
		begin+event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`)+event("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xff\"}}")+stop,
		begin+event("{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"\xff\",\"name\":\"\xff\",\"input\":{}}}")+event("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"[\"}}")+stop,
		begin+event("{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\xff\",\"signature\":\"\xff\"}}")+stop,
		event(`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`),
	)
}
