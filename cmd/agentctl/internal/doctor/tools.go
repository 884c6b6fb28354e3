package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/toolpolicy"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// longWait is after how long a wait for a person is a warning.
	longWait = time.Hour
	// muchScratch is how large one scratch directory may be, in bytes, and maxScratchFiles how many files are looked at in
	// each.
	muchScratch     = 1 << 30
	maxScratchFiles = 200_000
)

// scratch reports large directories of sandboxes and of MCP servers: they are removed with their agent, not before.
func (x *examination) scratch(ctx context.Context) {
	var dirs []string
	for _, pattern := range []string{filepath.Join(x.home.SandboxesDir(), "*"), filepath.Join(x.home.ServersDir(), "*", "*")} {
		found, err := filepath.Glob(pattern)
		if err == nil { // the pattern is right, unless the path of the home is odd
			dirs = append(dirs, found...)
		}
	}
	for _, dir := range dirs {
		if size := sizeOf(ctx, dir); size > muchScratch {
			x.note("scratch", warning, "remove what is not needed in it; all of it is removed with its agent ('agentctl rm')", "%s has %d MiB", boundary.Name(dir), size>>20)
		}
	}
}

var errEnough = errors.New("more files than are looked at")

// sizeOf is the size of the files in a directory, as far as they are looked at and can be.
func sizeOf(ctx context.Context, dir string) (size int64) {
	files := 0
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if files++; files > maxScratchFiles || ctx.Err() != nil {
			return errEnough
		}
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}

// waits reports approvals and questions that wait for a person for long. A list that cannot be read is no finding: the
// registry was reached, and reports what is wrong with it.
func (x *examination) waits(ctx context.Context) {
	old := func(agent, id, what, fix string, since time.Time) {
		if d := time.Since(since); d > longWait {
			x.note("waits", warning, fix, "%s: %s %s waits for %s", agent, what, id, d.Round(time.Minute))
		}
	}
	if r, err := x.env.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{State: registry.ApprovalState_APPROVAL_STATE_PENDING, PageSize: 1000}); err == nil {
		for _, a := range r.GetApprovals() {
			old(a.GetAgentId(), a.GetApprovalId(), "approval", "answer it: 'agentctl approvals list'", a.GetRequestedAt().AsTime())
		}
	}
	if r, err := x.env.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{State: registry.QuestionState_QUESTION_STATE_PENDING, PageSize: 1000}); err == nil {
		for _, q := range r.GetQuestions() {
			old(q.GetAgentId(), q.GetQuestionId(), "question", "answer it: 'agentctl questions list'", q.GetRequestedAt().AsTime())
		}
	}
}

// pins reports tools of MCP servers that have changed since they were approved.
func (x *examination) pins(ctx context.Context) {
	r, err := x.env.Pins().ListPins(ctx, &registry.ListPinsRequest{})
	if err != nil {
		return
	}
	changed := map[string][]string{}
	for _, p := range r.GetPins() {
		if p.GetState() == registry.PinState_PIN_STATE_CHANGED {
			changed[p.GetServer()] = append(changed[p.GetServer()], p.GetTool())
		}
	}
	for _, p := range r.GetPins() { // in the order of the servers
		if tools := changed[p.GetServer()]; len(tools) > 0 {
			x.note("mcp", warning, fmt.Sprintf("look at 'agentctl mcp diff %s', then 'agentctl mcp approve %s' or deny", p.GetServer(), p.GetServer()),
				"server %s has changed %s since the approval, such as %s; models do not have them", p.GetServer(), command.Count(len(tools), "tool", "tools"), boundary.Name(tools[0]))
			delete(changed, p.GetServer())
		}
	}
}

// toolsOf checks what the tools of one agent need: servers that do not run, and names in its settings.
func (x *examination) toolsOf(ctx context.Context, id string, settings *registry.GetAgentConfigResponse) {
	if x.byDefault == "" { // no runner was reached
		return
	}
	service := runner.NewToolServiceClient(x.env.Conn(command.Runner))
	if r, err := service.ListServers(ctx, &runner.ListServersRequest{AgentId: id}); err == nil {
		for _, s := range r.GetServers() {
			fix := "'agentctl mcp test " + s.GetName() + "' starts it, and shows why it ends"
			switch s.GetState() {
			case runner.ServerState_SERVER_STATE_AUTH:
				fix = "correct the reference that it names, then 'agentctl mcp restart " + s.GetName() + "'"
			case runner.ServerState_SERVER_STATE_DOWN:
			default:
				continue
			}
			x.note("mcp", warning, fix, "%s: server %s is %s: %s", id, s.GetName(), command.Word(s.GetState(), "SERVER_STATE_", "unknown"), strings.TrimSpace(s.GetWhat()))
		}
	}
	names := listed(settings)
	if len(names) == 0 {
		return
	}
	r, err := service.ListTools(ctx, &runner.ListToolsRequest{AgentId: id})
	if err != nil {
		return
	}
	var known []string
	for _, t := range r.GetTools() {
		known = append(known, t.GetPolicyName())
	}
	for _, name := range unknownNames(names, known) {
		fix := "remove it, or correct it; 'agentctl tools list " + id + " --all' shows the tools"
		if near := config.Nearest(name, known); near != "" {
			fix = "did you mean " + near + "? " + fix
		}
		x.note("tools", warning, fix, "%s: its lists of tools name %s, and there is no such tool", id, boundary.Name(name))
	}
}

// listed are the entries of the lists of tools that hold for an agent: its own and those of the home.
func listed(settings *registry.GetAgentConfigResponse) (names []string) {
	own, home := map[string]string{}, map[string]string{}
	for _, v := range settings.GetValues() {
		if key, ok := strings.CutPrefix(v.GetKey(), config.HomeKey); ok {
			home[key] = v.GetValue()
		} else {
			own[v.GetKey()] = v.GetValue()
		}
	}
	for _, values := range []map[string]string{own, home} {
		lists := map[string]string{}
		for _, key := range config.ToolKeys() {
			if text, ok := values[key]; ok {
				lists[key] = text
			}
		}
		t := config.FromValues(lists).Tools
		names = slices.Concat(names, t.Allow, t.AlsoAllow, t.Deny)
	}
	return names
}

// unknownNames are the names that are neither of a tool, nor of one that is built in and may come with another version,
// sorted. Groups and patterns are none.
func unknownNames(names, known []string) (out []string) {
	for _, entry := range names {
		name := toolpolicy.Canonical(entry)
		if name == "" || strings.ContainsAny(name, "*:") || slices.Contains(known, name) || toolpolicy.Builtin(name) {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
