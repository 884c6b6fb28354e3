package runner

import (
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/ask"
	"github.com/theclaw/agents/services/runner/internal/toolset/file"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/web"
)

// newTools lists the tools of a runner, one a line. agent is the program `agent` as programs
// in the sandbox see it.
func newTools(d Deps, b *sandboxes, processes *shell.Processes, agent string, secrets secret.Source) (*toolset.Tools, error) {
	workdirs := shell.NewWorkdirSync(registrypb.NewWorkdirServiceClient(d.Registry), d.Logger)
	exec := &shell.Tool{
		Sandbox: b.get, Approvals: registrypb.NewApprovalServiceClient(d.Registry), Agent: agent, Logger: d.Logger, Workdirs: workdirs, Processes: processes, Meter: d.Metrics,
	}
	tools := []toolset.Tool{
		exec,
		shell.Python{Tool: exec},
		shell.Process{Processes: processes},
		message.Tool{},
		ask.Tool{Questions: registrypb.NewQuestionServiceClient(d.Registry)},
	}
	tools = append(tools, file.New(workdirs)...)
	return toolset.New(append(tools, web.New(web.Options{Secrets: secrets})...)...)
}
