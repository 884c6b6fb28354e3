package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

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
	r, err := service.ListTools(ctx, &runner.ListToolsRequest{AgentId: id})
	if err != nil {
		return
	}
	var known []string
	for _, t := range r.GetTools() {
		known = append(known, t.GetPolicyName())
	}
	x.known = append(x.known, known...)
	for _, l := range listed(settings) {
		x.unknown(id+": "+l.key, l.entries, known, "'agentctl tools list "+id+" --all' shows the tools")
	}
	if out := leftOut(r.GetTools()); len(out) > 0 {
		x.note("tools", warning, "deny tools that it does not need (tools.deny), or have it use fewer MCP servers (mcp.use)",
			"%s: a model gets at most %d tools, and does not have %s of MCP servers, such as %s", id, toolpolicy.MaxOffered, command.Count(len(out), "tool", "tools"), boundary.Name(out[0]))
	}
	x.serversOf(id, settings)
}

// leftOut are the tools that are allowed and not offered, because there are too many.
func leftOut(tools []*runner.Tool) (names []string) {
	for _, t := range tools {
		if t.GetOverLimit() {
			names = append(names, t.GetName())
		}
	}
	return names
}

// serversOf reports names in mcp.use that no server has.
func (x *examination) serversOf(id string, settings *registry.GetAgentConfigResponse) {
	var known []string
	for _, s := range x.ofHome.Servers {
		known = append(known, s.Name)
	}
	for _, v := range settings.GetValues() {
		if v.GetKey() != "mcp.use" {
			continue
		}
		for _, name := range config.FromValues(map[string]string{v.GetKey(): v.GetValue()}).MCP.Use {
			if !slices.Contains(known, name) {
				x.note("mcp", warning, meant(name, known)+"correct it, or add the server: 'agentctl mcp add "+boundary.Name(name)+"'", "%s: mcp.use names %s, and there is no such MCP server", id, boundary.Name(name))
			}
		}
	}
}

// conversations checks the lists of tools of the accounts, which hold for the conversations of all agents. A name is known
// when any agent has the tool.
func (x *examination) conversations() {
	if len(x.known) == 0 { // no runner was reached, or there is no agent
		return
	}
	for _, a := range x.ofHome.Accounts {
		for _, kind := range slices.Sorted(maps.Keys(a.Tools)) {
			of := "channels." + a.Name + ".tools." + kind
			x.unknown(of+".allow", a.Tools[kind].Allow, x.known, "the list is in theclaw.yaml")
			x.unknown(of+".deny", a.Tools[kind].Deny, x.known, "the list is in theclaw.yaml")
		}
	}
}

// unknown reports the entries of a list that are no tool. A name that a list denies and no tool has denies nothing.
func (x *examination) unknown(list string, entries, known []string, more string) {
	for _, name := range unknownNames(entries, known) {
		x.note("tools", warning, meant(name, known)+"remove it, or correct it; "+more, "%s names %s, and there is no such tool", list, boundary.Name(name))
	}
}

// meant is a question for the nearest name; empty: none is near.
func meant(name string, known []string) string {
	if near := config.Nearest(name, known); near != "" {
		return "did you mean " + near + "? "
	}
	return ""
}

// list is a list of tools of the settings.
type list struct {
	key     string
	entries []string
}

// listed are the lists of tools that hold for an agent: its own and those of the home.
func listed(settings *registry.GetAgentConfigResponse) (out []list) {
	for _, v := range settings.GetValues() {
		key := strings.TrimPrefix(v.GetKey(), config.HomeKey)
		if strings.HasPrefix(key, config.ByProvider) {
			var p struct {
				Allow, Deny []string
				AlsoAllow   []string `yaml:"also_allow"`
			}
			if yaml.Unmarshal([]byte(v.GetValue()), &p) == nil { // the registry writes it
				out = append(out, list{v.GetKey() + ".allow", p.Allow}, list{v.GetKey() + ".also_allow", p.AlsoAllow}, list{v.GetKey() + ".deny", p.Deny})
			}
			continue
		}
		if !slices.Contains(config.ToolKeys(), key) && key != "tools.sandbox.tools.allow" && key != "tools.sandbox.tools.deny" {
			continue
		}
		t := config.FromValues(map[string]string{key: v.GetValue()}).Tools
		out = append(out, list{v.GetKey(), map[string][]string{
			"tools.allow": t.Allow, "tools.also_allow": t.AlsoAllow, "tools.deny": t.Deny,
			"tools.sandbox.tools.allow": t.Sandbox.Allow, "tools.sandbox.tools.deny": t.Sandbox.Deny,
		}[key]})
	}
	return out
}

// unknownNames are the names that are neither of a tool, nor of one that is built in and may come with another version,
// sorted. Groups and patterns are none.
func unknownNames(names, known []string) (out []string) {
	for _, entry := range names {
		name := toolpolicy.Canonical(entry)
		if name == "" || strings.ContainsAny(name, "*:") || slices.Contains(known, name) || toolpolicy.Builtin(name) || slices.Contains(toolpolicy.SandboxDeny, name) {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
