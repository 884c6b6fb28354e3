package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// report is what a provider says about a failure, in any of the usual shapes:
// {"error":{"message","type","code"}}, {"error":"text"}, {"message"},
// {"detail"}, or one of these in an array.
type report struct {
	found               bool
	message, kind, code string
}

func parseReport(body []byte) report {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) == nil && len(list) > 0 {
			body = list[0]
		}
	}
	var outer map[string]json.RawMessage
	if json.Unmarshal(body, &outer) != nil {
		return report{}
	}
	inner := outer
	raw, nested := outer["error"]
	if nested {
		inner = nil
		if json.Unmarshal(raw, &inner) != nil {
			return report{found: true, message: scalar(raw)}
		}
	}
	r := report{message: scalar(inner["message"]), kind: scalar(inner["type"]), code: scalar(inner["code"])}
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

func (r report) has(phrases ...string) bool {
	all := strings.ToLower(r.code + " " + r.kind + " " + r.message)
	for _, p := range phrases {
		if strings.Contains(all, p) {
			return true
		}
	}
	return false
}

func (r report) tooLong() bool {
	return r.has("context_length_exceeded", "exceed_context_size", "maximum context length", "context length",
		"context window", "context size", "prompt is too long", "maximum prompt length",
		"input token count", "exceeds the maximum number of tokens", "exceeded model token limit")
}

func (r report) filtered() bool {
	return r.has("content_filter", "content_policy", "content policy", "content management policy",
		"responsibleaipolicy", "data_inspection_failed", "usage policies")
}

func (r report) noCredit() bool {
	// Not the word billing: some providers mention it in plain rate limits.
	return r.has("insufficient_quota", "insufficient balance", "insufficient_balance",
		"exceeded_current_quota", "billing_not_active", "billing_hard_limit")
}

// cleaner makes errors of one provider that are safe to show.
type cleaner struct{ provider, key string }

// keyPattern is what keys of the well-known providers look like, also when
// half starred out by them.
var keyPattern = regexp.MustCompile(`\b(sk|pk|gsk|xai|key)-[A-Za-z0-9_*\-]{6,}`)

// maxMessage bounds the provider's words in our error, in bytes.
const maxMessage = 300

func (c cleaner) text(s string) string {
	if c.key != "" {
		s = strings.ReplaceAll(s, c.key, "[key]")
	}
	s = keyPattern.ReplaceAllString(s, "[key]")
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}

func (c cleaner) error(class model.Class, status int, message string) *model.Error {
	return &model.Error{Class: class, Status: status, Message: c.provider + ": " + c.text(message)}
}

// wrap keeps a cause. Callers pass only causes of our own side (network, JSON),
// never a provider's words.
func (c cleaner) wrap(class model.Class, message string, cause error) *model.Error {
	e := c.error(class, 0, message)
	e.Err = cause
	return e
}

// own puts the provider's name before an error of this driver's other parts.
func (c cleaner) own(e *model.Error) *model.Error {
	if !strings.HasPrefix(e.Message, c.provider+": ") {
		e.Message = c.provider + ": " + c.text(e.Message)
	}
	return e
}

// status classifies an answer of 400 and above.
func (c cleaner) status(status int, header http.Header, r report) *model.Error {
	message := r.message
	if message == "" {
		message = http.StatusText(status)
	}
	e := c.error(classOf(status, r), status, message)
	if e.Recoverable() {
		e.RetryAfter = retryAfter(header, time.Now())
	}
	return e
}

// event classifies an error that came in an answer of status 200; its code
// stands in for the status.
func (c cleaner) event(r report) *model.Error {
	status, _ := strconv.Atoi(r.code)
	if status < 400 || status > 599 {
		status = 0
	}
	if r.message == "" {
		r.message = "the provider reported an error in the middle of the answer"
	}
	return c.error(classOf(status, r), status, r.message)
}

// classOf is the one table from a status (0: unknown) and a report to a class.
func classOf(status int, r report) model.Class {
	refused := status == 0 || status == 400 || status == 403 || status == 413 || status == 422 || status == 451
	switch {
	case refused && r.tooLong(), status == http.StatusRequestEntityTooLarge:
		return model.ContextTooLong
	case refused && r.filtered(), status == http.StatusUnavailableForLegalReasons:
		return model.Policy
	case (status == 0 || status == http.StatusTooManyRequests) && r.noCredit():
		return model.Auth // no wait helps an empty account
	case status == http.StatusTooManyRequests, status == 0 && r.has("rate_limit", "rate limit", "too many requests"):
		return model.RateLimited
	case status == http.StatusUnauthorized, status == http.StatusPaymentRequired, status == http.StatusForbidden,
		status == 0 && r.has("invalid_api_key", "authentication_error"):
		return model.Auth
	case status == 0, status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return model.Unavailable
	}
	return model.Config
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
