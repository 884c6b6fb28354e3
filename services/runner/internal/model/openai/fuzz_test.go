package openai_test

import (
	"net/http"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/drivertest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

// S10: see drivertest.Fuzz.
func FuzzStream(f *testing.F) {
	drivertest.Fuzz(f, func(c *http.Client) (model.Driver, error) {
		return openai.New(openai.Config{Name: "p", BaseURL: "http://p.test/v1", Client: c})
	},
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"a\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
		"data: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\",\"reasoning\":\"\xfe\",\"tool_calls\":[{\"id\":\"\xff\",\"function\":{\"name\":\"\xff\",\"arguments\":\"{\"},\"extra_content\":\"\xff\"}]},\"finish_reason\":\"stop\"}]}\n\n",
		"event: ping\r\n: c\r\n\r\ndata:[1]\r\n\r\n",
	)
}
