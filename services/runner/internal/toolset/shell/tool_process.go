package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// ProcessName is the name of the tool for processes in the background.
const ProcessName = "process"

const (
	// maxWait is how long one call waits for the end of a process.
	maxWait = time.Minute
	// maxPiece is how much output one call returns, in bytes.
	maxPiece = 30_000
)

// Process is the tool that lists, reads, writes to and ends what the commands of a conversation
// have left in the background. A conversation has no part in the processes of another one.
type Process struct{ Processes *Processes }

// Spec implements [toolset.Tool].
func (Process) Spec() toolset.Spec {
	return toolset.Spec{
		Name: ProcessName,
		Description: "Works with commands in the background. list: all of this conversation. poll: the output of one from offset on; with wait_seconds it waits for the end. " +
			"write: a text to its input, if it was started with background. kill: ends it.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"action":{"type":"string","enum":["list","poll","write","kill"]},` +
			`"id":{"type":"string","description":"such as p-7f3a2b4c; not for list"},` +
			`"offset":{"type":"integer","description":"for poll: the offset of the last result, 0 for the first"},` +
			`"wait_seconds":{"type":"number","description":"for poll: at most 60"},` +
			`"text":{"type":"string","description":"for write: with a line break at its end, where the program wants one"}},` +
			`"required":["action"]}`),
		Summary: toolset.Summarize("action", "id"),
	}
}

type processArguments struct {
	Action string  `json:"action"`
	ID     string  `json:"id"`
	Offset int64   `json:"offset"`
	Wait   float64 `json:"wait_seconds"`
	Text   string  `json:"text"`
}

// Class implements [toolset.Tool]: to write is an effect, to end something twice is none.
func (Process) Class(c toolset.Call) toolset.Class {
	var a processArguments
	_ = json.Unmarshal(c.Args, &a) // what is not understood does nothing
	switch a.Action {
	case "write":
		return toolset.Effect
	case "kill":
		return toolset.Idempotent
	}
	return toolset.Read
}

// Run implements [toolset.Tool].
func (t Process) Run(ctx context.Context, c toolset.Call) toolset.Result {
	var a processArguments
	switch {
	case len(c.Args) > toolset.MaxArguments:
		return toolset.Failed(errTooLarge.Error())
	case json.Unmarshal(c.Args, &a) != nil:
		return toolset.Failed("the arguments are not understood: action, id and text are strings, offset and wait_seconds are numbers")
	case a.Action != "list" && a.ID == "":
		return toolset.Failed("id is missing; the action list names the processes")
	case a.Offset < 0 || !(a.Wait >= 0 && a.Wait <= maxWait.Seconds()):
		return toolset.Failed(fmt.Sprintf("offset is negative, or wait_seconds is not between 0 and %.0f", maxWait.Seconds()))
	}
	most := min(maxPiece, toolset.ResultChars(c.Place.Config))
	switch a.Action {
	case "list":
		return t.list(ctx, c)
	case "poll":
		if p := t.Processes.find(c.Place, a.ID); p != nil {
			return p.poll(ctx, a.Offset, most, time.Duration(a.Wait*float64(time.Second)))
		}
	case "write":
		if p := t.Processes.find(c.Place, a.ID); p != nil {
			return p.write(a.Text)
		}
	case "kill":
		if p := t.Processes.find(c.Place, a.ID); p != nil {
			p.cancel(errByCall)
			return p.poll(ctx, p.out.size(), most, maxWait)
		}
	default:
		return toolset.Failed("action must be one of list, poll, write, kill")
	}
	return t.ended(ctx, c, a)
}

// poll returns at most so many bytes of the output from an offset on, after the end of the process or of the wait.
func (p *process) poll(ctx context.Context, offset int64, most int, wait time.Duration) toolset.Result {
	p.mu.Lock()
	p.watchers++
	p.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.watchers--
	ending := p.ending
	p.mu.Unlock()
	if ending { // it may have been recorded that this call has seen it
		<-p.done
	}
	out := polled{ID: p.id, State: "running", Log: filepath.Join(SpillDir, p.id+".log")}
	if ending {
		out.end(p.state, p.result.ExitCode)
	}
	b, begin := p.out.from(offset, most)
	for n := 1; n < utf8.UTFMax && n < len(b) && begin+int64(len(b)) < p.out.size(); n++ { // not in the middle of a character
		if utf8.RuneStart(b[len(b)-n]) {
			if !utf8.FullRune(b[len(b)-n:]) {
				b = b[:len(b)-n]
			}
			break
		}
	}
	out.Output, out.Offset, out.Missing = toolset.WithoutPictures(sandbox.Text(b)), begin+int64(len(b)), begin-min(offset, begin)
	out.Seconds = int64(time.Since(p.begun).Seconds())
	return out.result()
}

func (p *process) write(text string) toolset.Result {
	err := errInputClosed
	if p.in != nil {
		err = p.in.write(text)
	} else if p.noInput {
		err = errNoInput
	}
	if err != nil {
		return toolset.Failed("nothing was written: " + err.Error())
	}
	return toolset.Result{Text: fmt.Sprintf("%d bytes written to process %s", len(text), p.id)}
}

// list lists the processes of the conversation.
func (t Process) list(ctx context.Context, c toolset.Call) toolset.Result {
	rows, err := t.rows(ctx, c, "")
	if err != nil {
		return toolset.Failed("the processes cannot be listed: " + reason(err))
	}
	lines := []string{}
	for _, row := range rows {
		p := t.Processes.find(c.Place, row.GetId())
		switch {
		case p != nil:
			lines = append(lines, fmt.Sprintf("%s running for %s: %s", p.id, time.Since(p.begun).Round(time.Second), p.what))
		case row.GetEndedAt() == nil: // of a lease before this one, or it ends now
			lines = append(lines, row.GetId()+" "+stateText(row.GetState(), row.GetExit()))
		default:
			lines = append(lines, fmt.Sprintf("%s %s, %s ago", row.GetId(), stateText(row.GetState(), row.GetExit()), time.Since(row.GetEndedAt().AsTime()).Round(time.Second)))
		}
	}
	if len(lines) == 0 {
		return toolset.Result{Text: "no process"}
	}
	return toolset.Result{Text: strings.Join(lines, "\n")}
}

// ended is the result of a call for a process that does not run here, from its row.
func (t Process) ended(ctx context.Context, c toolset.Call, a processArguments) toolset.Result {
	rows, err := t.rows(ctx, c, a.ID)
	switch {
	case err != nil:
		return toolset.Failed(reason(err))
	case a.Action == "write":
		return toolset.Failed("nothing was written: the process is over")
	}
	row := rows[0]
	out := polled{ID: row.GetId(), Offset: a.Offset, Output: row.GetTail(), Log: filepath.Join(SpillDir, row.GetId()+".log")}
	out.end(row.GetState(), int(row.GetExit()))
	if end := row.GetEndedAt(); end != nil {
		out.Seconds = int64(end.AsTime().Sub(row.GetStartedAt().AsTime()).Seconds())
	}
	return out.result()
}

func (t Process) rows(ctx context.Context, c toolset.Call, id string) ([]*registrypb.Process, error) {
	r, err := registrycall.Call(ctx, c.Place.Trusted, func(ctx context.Context) (*registrypb.ListProcessesResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		return t.Processes.journal.ListProcesses(ctx, &registrypb.ListProcessesRequest{AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Id: id})
	})
	return r.GetProcesses(), err
}

// polled is the result of a poll, for the model.
type polled struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Exit    *int   `json:"exit,omitempty"`
	Seconds int64  `json:"seconds"` // since it began, or how long it ran
	Output  string `json:"output"`
	Missing int64  `json:"missing,omitempty"` // bytes between the offset asked for and the output, which are in the log
	Offset  int64  `json:"offset"`            // for the next poll
	Log     string `json:"log"`
}

func (s *polled) end(state registrypb.ProcessState, exit int) {
	if s.State = stateName(state); state == registrypb.ProcessState_PROCESS_STATE_EXITED {
		s.Exit = &exit
	}
}

func (s *polled) result() toolset.Result {
	b, err := json.Marshal(s)
	if err != nil { // texts and numbers always encode
		return toolset.Failed("the result cannot be encoded")
	}
	return toolset.Result{JSON: b, Bounded: true}
}

func stateName(s registrypb.ProcessState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "PROCESS_STATE_"))
}

func stateText(s registrypb.ProcessState, exit int32) string {
	if s == registrypb.ProcessState_PROCESS_STATE_EXITED {
		return fmt.Sprintf("exited with code %d", exit)
	}
	return stateName(s)
}
