package machine

import (
	"encoding/json"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/store"
)

// Of the attempts of a turn the first ones and the newest ones are kept, each with the
// beginning of its error: what began it, and how it stands.
const (
	firstAttempts  = 2
	newestAttempts = 14
	maxClass       = 64  // bytes
	maxAttemptText = 256 // bytes
)

// crashText is the error of an attempt that ended silently.
const crashText = "the process that worked on it ended, or lost its lease, without giving it back"

// attempt is a [store.Attempt] as a row holds it.
type attempt struct {
	N       int    `json:"n"`
	At      int64  `json:"at"` // ms since 1970
	Class   string `json:"class"`
	Error   string `json:"error"`
	Counted bool   `json:"counted,omitempty"`
	Wait    int64  `json:"wait,omitempty"` // ms
}

// decodeAttempts reads the column of a row; another program may have written anything.
func decodeAttempts(column string) (list []attempt) {
	if column == "" || json.Unmarshal([]byte(column), &list) != nil {
		return nil
	}
	return list
}

// add records an attempt in the row.
func (r *Turn) add(now time.Time, f store.FailedTry) {
	list := decodeAttempts(r.Attempts)
	a := attempt{N: 1, At: now.UnixMilli(), Counted: f.Counted, Wait: f.Wait.Milliseconds()}
	if n := len(list); n > 0 {
		a.N = list[n-1].N + 1
	}
	a.Class, _ = boundary.Text(f.Class, maxClass)
	a.Error, _ = boundary.Text(f.Error, maxAttemptText)
	list = append(list, a)
	if extra := len(list) - firstAttempts - newestAttempts; extra > 0 {
		list = append(list[:firstAttempts], list[firstAttempts+extra:]...)
	}
	if b, err := json.Marshal(list); err == nil { // numbers and texts: it cannot fail
		r.Attempts = string(b)
	}
	r.touch()
}

// Attempts are those that a row holds.
func Attempts(column string) (out []store.Attempt) {
	for _, a := range decodeAttempts(column) {
		out = append(out, store.Attempt{
			N: a.N, At: store.FromMillis(a.At), Class: a.Class, Error: a.Error, Counted: a.Counted, Wait: time.Duration(a.Wait) * time.Millisecond,
		})
	}
	return out
}
