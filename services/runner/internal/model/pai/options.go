package pai

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/fault"
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

const (
	// probeTime bounds `pai chat --help`; a cold start of the real one takes a second.
	probeTime = 30 * time.Second
	// probeTries is how often it is asked before the try of the message has failed.
	probeTries = 2
)

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
	for try := 1; ; try++ {
		var failure *model.Error
		if w, failure = d.probe(ctx, box, path); failure == nil {
			break
		}
		if try == probeTries || !failure.Recoverable() {
			return words{}, failure
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

// probe asks once. That the program does not know an option is only concluded from a help
// text that came to its end: a probe that was killed, that failed or that could not be
// started proves nothing, and may be made again, since it has no effect.
func (d *Driver) probe(ctx context.Context, box Sandbox, path string) (w words, _ *model.Error) {
	r, err := box.Run(ctx, sandbox.Command{
		Argv: []string{path, "chat", "--help"}, Workdir: d.at.Workdir, Network: true, Timeout: probeTime, Limits: sandbox.Unlimited, Env: d.env(),
	})
	switch {
	case ctx.Err() != nil:
		return w, model.AsError(context.Cause(ctx))
	case err != nil:
		return w, d.notStarted(err)
	case r.TimedOut:
		return w, d.error(model.Unavailable, fmt.Sprintf("pai chat --help did not end within %s", probeTime))
	case r.Signal != "":
		return w, d.error(model.Unavailable, "pai chat --help was ended by "+r.Signal)
	case r.ExitCode == 126, r.ExitCode == 127:
		return w, d.error(model.Config, fmt.Sprintf("%s cannot be run (pai chat --help ended with %d: %s)", path, r.ExitCode, said(r)))
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
		switch {
		case w[i] != "" || i == optTurns:
		case r.ExitCode != 0:
			return w, d.error(model.Unavailable, fmt.Sprintf("pai chat --help ended with %d: %s", r.ExitCode, said(r)))
		default:
			return w, d.error(model.Config, fmt.Sprintf("%s does not know %s (by its pai chat --help); it is not a version that can be used", path, strings.Join(list, " or ")))
		}
	}
	return w, nil
}

// said is what a program said last.
func said(r sandbox.Result) string {
	out := sandbox.Text(r.Stderr)
	if strings.TrimSpace(out) == "" {
		out = sandbox.Text(r.Stdout)
	}
	return clean(out)
}

// notStarted is the failure of a program that was not run. What the machine has too little
// of just now may be there at the next try.
func (d *Driver) notStarted(err error) *model.Error {
	class, cause := model.Config, fault.Chain(err)
	for _, short := range []syscall.Errno{syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY, syscall.ENOSPC, syscall.EINTR} {
		if errors.Is(err, short) || strings.Contains(cause, short.Error()) {
			class = model.Unavailable
		}
	}
	return d.wrap(class, "pai cannot be run: "+clean(cause), err)
}
