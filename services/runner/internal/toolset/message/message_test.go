package message_test

import (
	"encoding/json"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

func TestTool(t *testing.T) {
	toolsettest.Run(t, message.Tool{}, toolsettest.Cases{
		Good:   []string{`{"text":"half way"}`, `{"text":"NO_REPLY\nbut this"}`},
		Bad:    []string{`{}`, `{"text":7}`, `{"text":" \n"}`, `{"text":"NO_REPLY"}`},
		Config: &registrypb.TurnConfig{MessageTool: true},
	})
}

// A message is what is left without the word of silence; the setting decides who has the
// tool.
func TestMessages(t *testing.T) {
	r := message.Tool{}.Run(t.Context(), toolset.Call{Args: json.RawMessage(`{"text":"NO_REPLY\nbut <this>"}`)})
	if len(r.Messages) != 1 || r.Messages[0].Text != "but <this>" || string(r.JSON) != `{"sent":true}` || r.IsError {
		t.Errorf("%+v", r)
	}
	tools, err := toolset.New(message.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tools.Set(&registrypb.TurnConfig{}).Offered()); n != 0 {
		t.Errorf("%d tools are offered without the setting", n)
	}
}
