package slacktest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Fault is what goes wrong with calls of the bot.
type Fault struct {
	Method  string // empty: any; file: the download of one, socket: the opening of one
	Channel string // empty: any
	// Error answers with a word of the platform, and Needed as the scope that is missing.
	Error, Needed string
	// Status of the answer: 429, 500 ... With RetryAfter, in seconds.
	Status     int
	RetryAfter int
	// Cut closes the connection: before the call has an effect, or after it.
	Cut string
	// Body is the answer, whatever the call did, with the status 200. After the greeting of a
	// socket it is a frame.
	Body string
	// Delay comes before everything else.
	Delay time.Duration
	// Times is how often it happens; 0: once, negative: until Heal. After is how many calls before that succeed.
	Times, After int
}

// Where a connection is cut.
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
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// fault takes the next fault of a call. The lock is held.
func (s *Server) fault(method, channel string) *Fault {
	for i, f := range s.faults {
		if f.Method != "" && f.Method != method || f.Channel != "" && f.Channel != channel {
			continue
		}
		if f.After > 0 {
			f.After--
			return nil
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
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	switch {
	case f.Cut == CutBefore:
		panic(http.ErrAbortHandler) // closes the connection
	case f.Error != "" && f.Status == 0:
		refuse(w, http.StatusOK, f.Error, f.Needed)
	case f.Status != 0 && f.Error == "":
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, http.StatusText(f.Status)) // a client that has gone away sees nothing
	case f.Status != 0:
		refuse(w, f.Status, f.Error, f.Needed)
	default:
		return true
	}
	return false
}
