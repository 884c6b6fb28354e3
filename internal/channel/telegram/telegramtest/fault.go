package telegramtest

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Fault is what goes wrong with calls of the bot.
type Fault struct {
	Method string `json:"method"` // empty: any; file: the download of one
	Chat   int64  `json:"chat"`   // 0: any
	// Status answers with an error: 401, 409, 429, 500 ... With RetryAfter, in seconds.
	Status      int    `json:"status"`
	RetryAfter  int    `json:"retry_after"`
	Description string `json:"description"`
	// Cut closes the socket: before the call has an effect, or after it.
	Cut string `json:"cut"`
	// Body is the answer, whatever the call did, with the status 200.
	Body string `json:"body"`
	// Delay comes before everything else.
	Delay time.Duration `json:"delay"`
	// Times is how often it happens; 0: once, negative: until Heal.
	Times int `json:"times"`
}

// Where a socket is cut.
const (
	CutBefore = "before"
	CutAfter  = "after"
)

// Fail makes calls fail.
func (s *Server) Fail(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	s.touch() // a poll that waits is a call as well
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	s.touch()
}

// Repeat makes the next answer of getUpdates begin with the last n updates that were acknowledged.
func (s *Server) Repeat(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeat = n
	s.touch()
}

// fault takes the next fault of a call. The lock is held.
func (s *Server) fault(method string, chat int64) *Fault {
	for i, f := range s.faults {
		if f.Method != "" && f.Method != method || f.Chat != 0 && f.Chat != chat {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
		}
		taken := *f
		return &taken
	}
	return nil
}

// disturb does what a fault does before its call; false when the call ends with that.
func (s *Server) disturb(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	if f.Delay > 0 {
		wait, cancel := context.WithTimeout(r.Context(), f.Delay)
		defer cancel()
		select {
		case <-wait.Done():
		case <-s.ctx.Done():
		}
	}
	switch {
	case f.Cut == CutBefore:
		panic(http.ErrAbortHandler) // closes the connection
	case f.Status != 0:
		no := &refusal{Code: f.Status, Description: f.Description}
		if no.Description == "" {
			no.Description = http.StatusText(f.Status)
		}
		no.Parameters.RetryAfter = f.RetryAfter
		refuse(w, no)
	default:
		return true
	}
	return false
}

// garbage answers with any text.
func garbage(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body) // a client that has gone away sees nothing
}
