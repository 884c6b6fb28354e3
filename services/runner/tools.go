package runner

import (
	"github.com/theclaw/agents/internal/sandbox/docker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/ask"
	"github.com/theclaw/agents/services/runner/internal/toolset/file"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/status"
	"github.com/theclaw/agents/services/runner/internal/toolset/web"
)

// newTools lists the tools of a runner, one a line, and returns the one that runs programs apart, too. agent is the
// program `agent` as programs in the sandbox see it, and version that of this program.
func newTools(d Deps, b *sandboxes, processes *shell.Processes, agent, version string, secrets secret.Source) (*toolset.Tools, *shell.Tool, error) {
	workdirs := shell.NewWorkdirSync(registrypb.NewWorkdirServiceClient(d.Registry), d.Logger)
	exec := &shell.Tool{
		Sandbox: b.get, Container: func(x docker.Box) shell.Sandbox { return b.docker.In(x) },
		Approvals: registrypb.NewApprovalServiceClient(d.Registry), Agent: agent, Logger: d.Logger, Workdirs: workdirs, Processes: processes, Meter: d.Metrics,
	}
	tools := []toolset.Tool{
		exec,
		shell.Python{Tool: exec},
		shell.Process{Processes: processes},
		message.Tool{},
		ask.Tool{Questions: registrypb.NewQuestionServiceClient(d.Registry)},
		status.Tool{Agents: registrypb.NewAgentServiceClient(d.Registry), Threads: registrypb.NewThreadServiceClient(d.Registry), Version: version},
	}
	tools = append(tools, file.New(workdirs)...)
	all, err := toolset.New(append(tools, web.New(web.Options{Secrets: secrets})...)...)
	if err != nil {
		return nil, nil, err
	}
	all.Programs = exec.Programs
	return all, exec, nil
}
