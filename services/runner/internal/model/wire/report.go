package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Report is what a provider says about a failure, in any of the usual shapes:
// {"error":{"message","type","code"}}, {"error":"text"}, {"message"},
// {"detail"}, or one of these in an array.
type Report struct {
	// found: the body was a report at all.
	found               bool
	message, kind, code string
}

// ParseReport reads the body of an error, or the data of an error event.
func ParseReport(body []byte) Report {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) == nil && len(list) > 0 {
			body = list[0]
		}
	}
	var outer map[string]json.RawMessage
	if json.Unmarshal(body, &outer) != nil {
		return Report{}
	}
	inner := outer
	raw, nested := outer["error"]
	if nested {
		inner = nil
		if json.Unmarshal(raw, &inner) != nil {
			return Report{found: true, message: scalar(raw)}
		}
	}
	r := Report{message: scalar(inner["message"]), kind: scalar(inner["type"]), code: scalar(inner["code"])}
	if r.message == "" {
		r.message = scalar(inner["detail"])
	}
	r.found = nested || (r.message != "" && outer["choices"] == nil)
	return r
}

// scalar reads a string or number; anything else is empty.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// text is all of it, for [model.ClassOf].
func (r Report) text() string { return r.code + " " + r.kind + " " + r.message }

// Cleaner makes errors of one provider that are safe to show: without its key,
// other keys, line breaks and endless text.
type Cleaner struct{ Provider, Key string }

func (c Cleaner) text(s string) string {
	if c.Key != "" {
		s = strings.ReplaceAll(s, c.Key, "[key]")
	}
	return model.CleanWords(s)
}

// Error is a classified failure in the provider's words.
func (c Cleaner) Error(class model.Class, status int, message string) *model.Error {
	return &model.Error{Class: class, Status: status, Message: c.Provider + ": " + c.text(message)}
}

// Wrap keeps a cause. Callers pass only causes of our own side (network, JSON),
// never a provider's words.
func (c Cleaner) Wrap(class model.Class, message string, cause error) *model.Error {
	e := c.Error(class, 0, message)
	e.Err = cause
	return e
}

// Own puts the provider's name before an error of this driver's other parts.
func (c Cleaner) Own(e *model.Error) *model.Error {
	if !strings.HasPrefix(e.Message, c.Provider+": ") {
		e.Message = c.Provider + ": " + c.text(e.Message)
	}
	return e
}

// Status classifies an answer of 400 and above.
func (c Cleaner) Status(status int, header http.Header, r Report) *model.Error {
	message := r.message
	if message == "" {
		message = http.StatusText(status)
	}
	e := c.Error(model.ClassOf(status, r.text()), status, message)
	if e.Recoverable() {
		e.RetryAfter = retryAfter(header, time.Now())
	}
	return e
}

// Event classifies an error that came in an answer of status 200; its code
// stands in for the status.
func (c Cleaner) Event(r Report) *model.Error {
	status, _ := strconv.Atoi(r.code)
	if status < 400 || status > 599 {
		status = 0
	}
	if r.message == "" {
		r.message = "the provider reported an error in the middle of the answer"
	}
	return c.Error(model.ClassOf(status, r.text()), status, r.message)
}

// maxRetryAfter bounds what is believed of a Retry-After.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads Retry-After-Ms (OpenAI) and Retry-After as seconds, also
// with a fraction, or as an HTTP date. 0 means not given or in the past.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, field := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		value := strings.TrimSpace(h.Get(field.name))
		if n, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(n) {
			return time.Duration(min(max(n, 0)*float64(field.unit), float64(maxRetryAfter)))
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
	}
	return 0
}
