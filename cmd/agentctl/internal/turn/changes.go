package turn

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// change is how a call changed a file, for programs.
type change struct {
	Step string `json:"step"`
	Tool string `json:"tool"`
	Path string `json:"path"`
	Diff string `json:"diff"`
}

// changesOf asks the runner what the calls of a turn have changed. leftOut is how many changes are
// too large for one response.
func changesOf(c *cobra.Command, e *command.Env, t *registry.Turn) (changes []change, leftOut int32, err error) {
	var keys []string
	byKey := map[string]*registry.Step{}
	for _, s := range t.GetSteps() {
		if s.GetKind() == registry.StepKind_STEP_KIND_TOOL {
			key := t.GetKey() + ":" + s.GetKey()
			keys, byKey[key] = append(keys, key), s
		}
	}
	const most = 1000 // of one request
	for changes = []change{}; len(keys) > 0; {
		n := min(most, len(keys))
		r, err := runner.NewToolServiceClient(e.Conn(command.Runner)).GetChanges(c.Context(), &runner.GetChangesRequest{AgentId: t.GetAgentId(), ThreadId: t.GetThreadId(), CallKeys: keys[:n]})
		if err != nil {
			return nil, 0, err
		}
		for _, ch := range r.GetChanges() {
			s := byKey[ch.GetCallKey()]
			changes = append(changes, change{Step: s.GetKey(), Tool: s.GetName(), Path: ch.GetPath(), Diff: ch.GetDiff()})
		}
		leftOut, keys = leftOut+r.GetLeftOut(), keys[n:]
	}
	return changes, leftOut, nil
}

// showChanges prints changes as diffs.
func showChanges(e *command.Env, changes []change, leftOut int32) {
	if len(changes) == 0 {
		e.Note("No changes of files by tools are kept for this message; what commands changed is not recorded")
	}
	for _, ch := range changes {
		fmt.Fprintf(e.Out, "\n%s (%s)\n", screen.Line(ch.Tool), screen.Line(ch.Step))
		for line := range strings.Lines(ch.Diff) {
			fmt.Fprintln(e.Out, painted(e, screen.Clean(strings.TrimSuffix(line, "\n"))))
		}
	}
	if leftOut > 0 {
		e.Note("%s left out, because the differences are too large", command.Count(int(leftOut), "change is", "changes are"))
	}
}

// painted is a line of a diff in its color.
func painted(e *command.Env, line string) string {
	switch {
	case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
		return screen.Paint(e, text.Bold, line)
	case strings.HasPrefix(line, "+"):
		return screen.Paint(e, text.FgGreen, line)
	case strings.HasPrefix(line, "-"):
		return screen.Paint(e, text.FgRed, line)
	case strings.HasPrefix(line, "@@ "):
		return screen.Paint(e, text.FgCyan, line)
	}
	return line
}
