package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// play answers one request as the step says. A broken connection is made with
// http.ErrAbortHandler, the way net/http offers.
func play(w http.ResponseWriter, r *http.Request, s Step, api format, model string, number int) {
	if s.HangUp {
		panic(http.ErrAbortHandler)
	}
	for k, v := range s.Header {
		w.Header().Set(k, v)
	}
	if s.RetryAfter != "" {
		w.Header().Set("Retry-After", s.RetryAfter)
	}
	stream := s.Status == 0 || s.Status == http.StatusOK
	if !stream || s.Body != "" {
		whole(w, s)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.WriteHeader(http.StatusOK)
	out := &sse{w: w, r: r, flush: http.NewResponseController(w), step: s, api: api(model, number, s)}
	if out.flush.Flush() != nil || !out.run() && !out.ended || s.Cut {
		panic(http.ErrAbortHandler)
	}
}

func whole(w http.ResponseWriter, s Step) {
	body := s.Body
	if body == "" && s.Error != nil {
		b, err := json.Marshal(map[string]any{"error": s.Error})
		if err != nil {
			panic(fmt.Sprintf("modeltest: the script's error does not encode: %v", err))
		}
		body = string(b)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(max(s.Status, http.StatusOK))
	_, _ = w.Write([]byte(body)) // a client that left needs no answer
}

// A format writes the parts of an answer in a provider's own words; each part
// is one or more server-sent events. An empty part is not written.
type format func(model string, number int, s Step) api

type api interface {
	begin() []event
	reasoning(piece string) []event
	text(piece string) []event
	// calls returns the pieces of all calls, those of parallel calls in turn.
	calls() []event
	failure(APIError) []event
	finish(reason string) []event
	end() []event
}

// event is one server-sent event; name may be empty.
type event struct {
	name string
	data any // JSON, or a string as it is
}

// sse writes one stream; once a write fails or the client has gone, it is dead.
type sse struct {
	w     http.ResponseWriter
	r     *http.Request
	flush *http.ResponseController
	step  Step
	api   api
	// sent counts events, of which pieces are those of the answer itself.
	sent, pieces int
	// ended: the script ends the body here.
	ended bool
}

// run writes the complete script and reports whether the client is still there.
func (o *sse) run() bool {
	s := o.step
	if s.Prefix != "" && !o.write(s.Prefix) {
		return false
	}
	if !o.all(o.api.begin()) {
		return false
	}
	if len(s.Reasoning)+len(s.Text)+len(s.ToolCalls) == 0 && !o.wait() {
		return false
	}
	for _, piece := range s.Reasoning {
		if !o.piece(o.api.reasoning(piece)) {
			return false
		}
	}
	for _, piece := range s.Text {
		if !o.piece(o.api.text(piece)) {
			return false
		}
	}
	for _, e := range o.api.calls() {
		if !o.piece([]event{e}) {
			return false
		}
	}
	for _, line := range s.Raw {
		if !o.write(line + "\n") {
			return false
		}
	}
	if s.Drip && !o.drip() {
		return false
	}
	if s.Garbage != "" && !o.all([]event{{o.name(), s.Garbage}}) {
		return false
	}
	if s.Cut {
		return true
	}
	if s.Error != nil && !o.all(o.api.failure(*s.Error)) {
		return false
	}
	finish := s.Finish
	if finish == "" {
		finish = "stop"
		if len(s.ToolCalls) > 0 {
			finish = "tool_calls"
		}
	}
	if finish != FinishNone && !o.all(o.api.finish(finish)) {
		return false
	}
	return s.NoDone || o.all(o.api.end())
}

// name is that of an event in the middle of an answer.
func (o *sse) name() string {
	if events := o.api.text("x"); len(events) > 0 {
		return events[len(events)-1].name
	}
	return ""
}

// piece sends one piece, then holds the stream where the script says so.
func (o *sse) piece(events []event) bool {
	if !o.all(events) {
		return false
	}
	o.pieces++
	if o.pieces == 1 && !o.wait() {
		return false
	}
	return o.step.PauseMS == 0 || o.pause(time.Duration(o.step.PauseMS)*time.Millisecond)
}

// drip keeps the line busy with comments and says nothing, until the client
// leaves.
func (o *sse) drip() bool {
	for o.pause(10 * time.Millisecond) {
		if !o.write(": waiting\n") {
			return false
		}
	}
	return false
}

func (o *sse) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-o.gone():
		return false
	}
}

func (o *sse) wait() bool {
	if o.step.Gate == nil {
		return true
	}
	select {
	case <-o.step.Gate:
		return true
	case <-o.gone():
		if o.step.Left != nil {
			close(o.step.Left)
		}
		return false
	}
}

func (o *sse) gone() <-chan struct{} { return o.r.Context().Done() }

// all writes events, up to where the script cuts the stream.
func (o *sse) all(events []event) bool {
	for _, e := range events {
		text, ok := e.data.(string)
		if !ok {
			b, err := json.Marshal(e.data)
			if err != nil {
				panic(fmt.Sprintf("modeltest: the script does not encode: %v", err))
			}
			text = string(b)
		}
		line := "data: " + text + "\n\n"
		if e.name != "" {
			line = "event: " + e.name + "\n" + line
		}
		if !o.write(line) {
			return false
		}
		o.sent++
		if n := o.step.CutAfter; n > 0 && o.sent >= n {
			panic(http.ErrAbortHandler)
		}
		if n := o.step.EndAfter; n > 0 && o.sent >= n {
			o.ended = true
			return false
		}
	}
	return true
}

func (o *sse) write(s string) bool {
	if len(o.step.Replace) > 0 {
		s = strings.NewReplacer(o.step.Replace...).Replace(s)
	}
	if _, err := o.w.Write([]byte(s)); err != nil {
		return false
	}
	return o.flush.Flush() == nil
}
