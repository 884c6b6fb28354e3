package pai

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// The options of a call.
const (
	optStream = iota
	optJSON
	optSession
	optSystem
	optProvider
	optModel
	optInput
	optTurns // of a call aside; a version without it cannot make one
)

// spellings of each option, the contract's first.
var spellings = [...][]string{
	optStream:   {"--stream"},
	optJSON:     {"--json"},
	optSession:  {"--session", "--session-file", "--session_file"},
	optSystem:   {"--system-file", "--system_file"},
	optProvider: {"--provider"},
	optModel:    {"--model"},
	optInput:    {"--input-file", "--input_file"},
	optTurns:    {"--max-turns", "--max_turns"},
}

type words [len(spellings)]string

// known are the words of each program that was asked, by its path and state: a
// new version is another file.
var known = struct {
	mu sync.Mutex
	by map[string]words
}{by: map[string]words{}}

var option = regexp.MustCompile(`--[a-z][a-z_-]*`)

// probeTime bounds `pai chat --help`; a cold start of the real one takes a second.
const probeTime = 30 * time.Second

// options asks the program once per version how it calls its options.
func (d *Driver) options(ctx context.Context, box Sandbox, path string) (words, error) {
	st, err := os.Stat(path)
	if err != nil {
		return words{}, d.wrap(model.Config, "the program is gone", err)
	}
	id := fmt.Sprintf("%s %d %d", path, st.Size(), st.ModTime().UnixNano())
	known.mu.Lock()
	w, ok := known.by[id]
	known.mu.Unlock()
	if ok {
		return w, nil
	}
	r, err := box.Run(ctx, sandbox.Command{
		Argv: []string{path, "chat", "--help"}, Workdir: d.at.Workdir, Network: true, Timeout: probeTime, Limits: none, Env: d.env(),
	})
	switch {
	case ctx.Err() != nil:
		return words{}, model.AsError(context.Cause(ctx))
	case err != nil:
		return words{}, d.wrap(model.Config, "pai cannot be run", err)
	case r.TimedOut:
		return words{}, d.error(model.Unavailable, "pai chat --help did not end")
	}
	has := map[string]bool{}
	for _, o := range option.FindAllString(sandbox.Text(r.Stdout)+sandbox.Text(r.Stderr), -1) {
		has[o] = true
	}
	for i, list := range spellings {
		for _, o := range list {
			if has[o] {
				w[i] = o
				break
			}
		}
		if w[i] == "" && i != optTurns {
			return words{}, d.error(model.Config, fmt.Sprintf("%s does not know %s (pai chat --help ended with %d); it is not a version that can be used",
				path, strings.Join(list, " or "), r.ExitCode))
		}
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if len(known.by) >= 64 { // versions come and go with upgrades
		clear(known.by)
	}
	known.by[id] = w
	return w, nil
}
