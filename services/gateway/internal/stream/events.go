package stream

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

const (
	// KeepAlive is after how long without an event a comment is sent, so that no proxy ends the connection.
	KeepAlive = 15 * time.Second
	// writeLimit is how long a client has to take what was written.
	writeLimit = 10 * time.Second
	// mediaType is the type of a stream of events.
	mediaType = "text/event-stream"
)

// Wanted reports whether a request accepts a stream of events.
func Wanted(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			if t, _, err := mime.ParseMediaType(one); err == nil && t == mediaType {
				return true
			}
		}
	}
	return false
}

// Last returns the position of the last frame that a client has, by the header Last-Event-ID; 0:
// it has none. An id that is no position is an error that says so (INVALID_ARGUMENT).
func Last(r *http.Request) (uint64, error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0, fault.New(codes.InvalidArgument, fault.InvalidArgument, "Last-Event-ID is the id of an event of the run", "leave it out to get the run from its beginning")
	}
	return n, nil
}

// Events is a stream of server-sent events to one client. It is not safe for concurrent use.
type Events struct {
	w io.Writer
	c *http.ResponseController
}

// Begin begins a stream as the answer of a request. Its errors are those of a client that has
// gone away, or has taken nothing for 10 s; there is nothing to be done about them.
func Begin(w http.ResponseWriter) (*Events, error) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy passes on each event as it comes
	w.WriteHeader(http.StatusOK)
	e := &Events{w, http.NewResponseController(w)}
	return e, e.write("")
}

// Frame sends a frame of a run.
func (e *Events) Frame(f Frame) error {
	var data struct {
		Text  string `json:"text,omitempty"`
		State string `json:"state,omitempty"`
	}
	switch f.Type {
	case Text:
		data.Text = f.Text
	case State:
		data.State = f.Text
	case Void:
	}
	return e.send(string(f.Type), f.Seq, data)
}

// End sends the last event, which has no position.
func (e *Events) End(name string, data any) error { return e.send(name, 0, data) }

// Comment sends a line that clients ignore.
func (e *Events) Comment() error { return e.write(": wait\n\n") }

func (e *Events) send(name string, seq uint64, data any) error {
	var b strings.Builder
	if seq > 0 {
		fmt.Fprintf(&b, "id: %d\n", seq)
	}
	fmt.Fprintf(&b, "event: %s\ndata: ", name)
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if err := j.Encode(data); err != nil { // in one line, which it ends
		return err
	}
	b.WriteByte('\n')
	return e.write(b.String())
}

// write sends what is written to the client now.
func (e *Events) write(text string) error {
	if err := e.c.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(e.w, text); err != nil {
		return err
	}
	return e.c.Flush()
}
