package toolset_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// person answers what is asked, and keeps it.
type person struct {
	yes   bool
	asked []*registrypb.RequestApprovalRequest
}

func (p *person) RequestApproval(_ context.Context, in *registrypb.RequestApprovalRequest, _ ...grpc.CallOption) (*registrypb.RequestApprovalResponse, error) {
	p.asked = append(p.asked, in)
	state := registrypb.ApprovalState_APPROVAL_STATE_DENIED
	switch {
	case len(p.asked) == 1:
		state = registrypb.ApprovalState_APPROVAL_STATE_PENDING
	case p.yes:
		state = registrypb.ApprovalState_APPROVAL_STATE_USED
	}
	return &registrypb.RequestApprovalResponse{Approval: &registrypb.Approval{ApprovalId: "ap-1", Digest: in.GetDigest(), State: state}}, nil
}

// With external_guard mcp a call of an MCP server with an effect asks a person when the model was shown an external result
// before, or the message is not from an owner: it begins after a yes to exactly this call. A result of the same answer was
// not shown yet, and calls without an effect and those of the runner's own tools do not ask.
func TestGuardOfServers(t *testing.T) {
	page, look, own := named("page"), named("srv__look"), effect{named("own")}
	page.spec.External, look.spec.Server = true, "srv"
	change := effect{named("srv__change")}
	change.spec.Server = "srv"
	mcp, host := &registrypb.ExternalGuard{Mcp: true}, &registrypb.ExternalGuard{Host: true}
	outsider := &registrypb.ExternalGuard{Mcp: true, Outsider: true}
	for name, c := range map[string]struct {
		guard  *registrypb.ExternalGuard
		before string // a call of the answer before
		calls  []string
		yes    bool
		asks   string // the calls that ask
		ran    bool   // the last one
	}{
		"yes":              {mcp, "page", []string{"srv__change"}, true, "srv__change", true},
		"no":               {mcp, "page", []string{"srv__change"}, false, "srv__change", false},
		"server before":    {mcp, "srv__look", []string{"srv__change"}, true, "srv__change", true},
		"not an owner":     {outsider, "", []string{"srv__change"}, false, "srv__change", false},
		"nothing external": {mcp, "own", []string{"srv__change"}, false, "", true},
		"same answer":      {mcp, "", []string{"page", "srv__change"}, false, "", true},
		"no effect":        {mcp, "page", []string{"srv__look"}, false, "", true},
		"own tool":         {mcp, "page", []string{"own"}, false, "", true},
		"other guard":      {host, "page", []string{"srv__change"}, false, "", true},
		"no guard":         {nil, "page", []string{"srv__change"}, false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &person{yes: c.yes}
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{ExternalGuard: c.guard}, page, look, own, change)
			j.Log.Tools.Approvals = p
			if c.before != "" {
				if _, err := toolsettest.Use(t.Context(), calls, "tool:1:1", call(c.before), false); err != nil {
					t.Fatal(err)
				}
			}
			key := func(n int) string { return "tool:2:" + string(rune('0'+n)) }
			var made []model.ToolCall
			for _, name := range c.calls {
				made = append(made, call(name))
			}
			rows := calls.Intents(key, made)
			asks := ""
			for _, row := range rows {
				if row.GetAsks() {
					asks += row.GetName()
				}
			}
			if asks != c.asks {
				t.Errorf("asks: %q", asks)
			}
			if err := j.Write(t.Context(), nil, rows...); err != nil {
				t.Fatal(err)
			}
			results, err := calls.Use(t.Context(), key, made, "")
			if err != nil {
				t.Fatal(err)
			}
			if last := results[len(results)-1]; strings.Contains(last, "nothing was run") == c.ran {
				t.Errorf("the result: %s", last)
			}
			if (len(p.asked) > 0) != (c.asks != "") {
				t.Errorf("%d questions", len(p.asked))
			}
			for _, in := range p.asked {
				if in.GetKind() != registrypb.ApprovalKind_APPROVAL_KIND_TOOL || in.GetTool() != c.asks || in.GetCommand() != c.asks+" {}" ||
					in.GetDigest() != toolset.Digest("srv", c.asks, "{}") || in.GetFallback() || !in.GetExternal() || in.GetKey() != "turn:tool:2:1" {
					t.Errorf("asked %v", in)
				}
			}
		})
	}
}

// A call whose intent asked goes on to ask whatever the settings say now, and without a person who can be asked it is refused.
func TestGuardStays(t *testing.T) {
	change := effect{named("srv__change")}
	change.spec.Server = "srv"
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, change)
	row := calls.Intents(func(int) string { return "tool:1:1" }, []model.ToolCall{call("srv__change")})[0]
	row.Asks = true
	if err := j.Write(t.Context(), nil, row); err != nil {
		t.Fatal(err)
	}
	text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", call("srv__change"), false)
	if err != nil || !strings.Contains(text, "did not approve") {
		t.Errorf("%s, %v", text, err)
	}
}

func call(name string) model.ToolCall {
	return model.ToolCall{ID: "c", Name: name, Arguments: json.RawMessage(`{}`)}
}
