package runner

import (
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/ask"
	"github.com/theclaw/agents/services/runner/internal/toolset/file"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/web"
)

// newTools lists the tools of a runner, one a line. agent is the program `agent` as programs
// in the sandbox see it.
func newTools(d Deps, b *sandboxes, agent string) (*toolset.Tools, error) {
	workdirs := shell.NewWorkdirSync(registrypb.NewWorkdirServiceClient(d.Registry), d.Logger)
	tools := []toolset.Tool{
		&shell.Tool{Sandbox: b.get, Approvals: registrypb.NewApprovalServiceClient(d.Registry), Agent: agent, Logger: d.Logger, Workdirs: workdirs},
		message.Tool{},
		ask.Tool{Questions: registrypb.NewQuestionServiceClient(d.Registry)},
	}
	tools = append(tools, file.New(workdirs)...)
	internet, err := web.New(web.Options{})
	if err != nil {
		return nil, err
	}
	return toolset.New(append(tools, internet...)...)
}
