package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Name of the tool that runs commands, and Send of the one that speaks to the peer:
// it runs nothing here, what it says is committed together with its result.
const (
	Name = "bash_exec"
	Send = "message_send"
)

// Sizes in bytes. The arguments and the result of a call become one event of at
// most 1 MiB.
const (
	MaxArguments = 192 << 10
	MaxResult    = 640 << 10
)

// Class says what may be done with a call whose end is not known.
type Class int

// The classes.
const (
	Read       Class = iota + 1 // changes nothing: run it again
	Idempotent                  // may be repeated: run it again
	Effect                      // must not be repeated blindly
)

// Sandbox runs a command; [sandbox.Sandbox] does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Place is where the tools of one turn run.
type Place struct {
	AgentID, ThreadID string
	// Fence is resource=token of the lease.
	Fence string
	// Workdir is absolute; it is made when it is missing.
	Workdir string
	Network bool
	// Env is added to the variables of every command.
	Env map[string]string
}

// Call is one call of the model.
type Call struct {
	// Key is the key of the turn and of the step: stable over crashes.
	Key       string
	Name      string
	Arguments json.RawMessage
	// Output is given what the program prints while it runs, from any goroutine;
	// nil is not.
	Output func([]byte)
}

// Result is what a call answers; a nil Error means that a program ran.
type Result struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exitCode"`
	TimedOut  bool   `json:"timedOut"`
	Truncated bool   `json:"truncated"`
	Spill     string `json:"spill,omitempty"`
}

var offered = []model.Tool{{
	Name:        Name,
	Description: "Runs a shell command in the working directory and answers its stdout, stderr and exit code.",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"the command line for bash -c"},` +
		`"comment":{"type":"string","description":"why you run it, in a few words"},` +
		`"cwd":{"type":"string","description":"directory to run in, inside the working directory"},` +
		`"timeout_seconds":{"type":"number","description":"seconds until it is killed; 600 unless given, at most 3600"}},` +
		`"required":["command"]}`),
}}

var send = model.Tool{
	Name: Send,
	Description: "Sends a message to the person you talk to at once, while you go on working. " +
		"Your last answer is sent anyway: do not send it with this tool too.",
	Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"the message"}},"required":["text"]}`),
}

// Offered are the tools to offer to a model: with that to send messages, or without.
func Offered(messages bool) []model.Tool {
	if messages {
		return []model.Tool{offered[0], send}
	}
	return offered
}

// ClassOf is the class of a tool. A message that was begun and has no result was not
// sent, since both are one transaction. What is not known runs nothing and reads.
func ClassOf(name string) Class {
	switch name {
	case Name:
		return Effect
	case Send:
		return Idempotent
	}
	return Read
}

// Command is what a call would run; false when it runs nothing.
func Command(at Place, c Call) (sandbox.Command, bool) {
	command, err := parse(at, c)
	return command, err == nil && c.Name == Name
}

// Run makes one call and answers its result as JSON. It never fails: what went
// wrong is the answer. When ctx ends, the whole tree of processes is killed
// first.
func Run(ctx context.Context, box Sandbox, at Place, c Call) []byte {
	if c.Name != Name {
		return Problem(fmt.Sprintf("there is no tool %q here; to run a command there is %s", c.Name, Name))
	}
	command, err := parse(at, c)
	if err != nil {
		return Problem(err.Error())
	}
	if err := makeWorkdir(at.Workdir); err != nil {
		return Problem("the working directory cannot be made: " + err.Error())
	}
	command.OnStdout, command.OnStderr = c.Output, c.Output
	r, err := box.Run(ctx, command)
	if err != nil {
		e := fault.From(err)
		text := e.What
		if e.Fix != "" {
			text += " - " + e.Fix
		}
		return Problem(text)
	}
	return encode(r, command.Timeout)
}

// Problem is the result of a call that ran nothing, or of which nothing more is
// known.
func Problem(text string) []byte {
	b, err := json.Marshal(map[string]string{"error": cut(text, 4096)})
	if err != nil { // a map of strings always encodes
		return []byte(`{"error":"unknown"}`)
	}
	return b
}

// encode fits a result into MaxResult: escapes can make it six times as long.
func encode(r sandbox.Result, timeout time.Duration) []byte {
	out := Result{
		Stdout: withoutPictures(sandbox.Text(r.Stdout)), Stderr: withoutPictures(sandbox.Text(r.Stderr)), ExitCode: r.ExitCode,
		TimedOut: r.TimedOut, Truncated: r.Truncated, Spill: r.Spill,
	}
	switch {
	case r.TimedOut:
		out.Stderr += fmt.Sprintf("\n[killed: it ran longer than %s]", timeout)
	case r.Canceled:
		out.Stderr += "\n[killed: the turn was ended]"
	}
	return fit(out)
}

// Note is a result with a line of ours behind what the program said.
func Note(result []byte, text string) []byte {
	r, problem := decode(result)
	if problem != "" {
		return result
	}
	r.Stderr += "\n[" + cut(text, 1024) + "]"
	return fit(r)
}

func fit(out Result) []byte {
	for {
		b, err := json.Marshal(out)
		if err != nil {
			return Problem("the result cannot be encoded")
		}
		if len(b) <= MaxResult {
			return b
		}
		out.Truncated = true
		out.Stdout, out.Stderr = cut(out.Stdout, len(out.Stdout)/2), cut(out.Stderr, len(out.Stderr)/2)
	}
}

// Fit is a result that another program has made, as it stands, or what fits of
// it into MaxResult.
func Fit(result json.RawMessage) []byte {
	if small := withoutPictures(string(result)); len(small) <= MaxResult && json.Valid([]byte(small)) {
		return []byte(small)
	}
	r, problem := decode(result)
	if problem != "" || r.Stdout+r.Stderr == "" {
		return Problem("the result is not understood, or larger than can be kept")
	}
	r.Stdout, r.Stderr = withoutPictures(r.Stdout), withoutPictures(r.Stderr)
	return fit(r)
}

// decode reads a result; problem is why nothing ran, or what is wrong with it.
func decode(result []byte) (r Result, problem string) {
	var p struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(result, &r) != nil {
		return r, "the result is not understood"
	}
	_ = json.Unmarshal(result, &p) // an error that is no text is none of ours
	return r, p.Error
}
