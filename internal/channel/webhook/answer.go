package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// classify is what an answer other than 2xx means. inDoubt: the receiver may
// have acted on the message before it gave this answer.
//
//	408 425 429 502 503 504   Unavailable   it is busy or away
//	409                       Failed        a send under the same key is still in work:
//	                                        worth the minute that the attempts take
//	other 4xx                 Rejected      the same request will be refused again
//	other 5xx                 Failed
//	anything else             Rejected      no HTTP that we accept
func classify(status int) (class channel.Class, inDoubt bool) {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return channel.Unavailable, false
	case http.StatusBadGateway, http.StatusGatewayTimeout: // the host behind may have it
		return channel.Unavailable, true
	case http.StatusConflict:
		return channel.Failed, true
	}
	if status/100 == 5 {
		return channel.Failed, true
	}
	return channel.Rejected, false
}

func (w *Webhook) statusError(res *http.Response, answer []byte) *channel.Error {
	class, inDoubt := classify(res.StatusCode)
	e := &channel.Error{
		Class: class, InDoubt: inDoubt, RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now()),
		What: fmt.Sprintf("webhook %s answered %d", w.cfg.Name, res.StatusCode),
		Fix:  "check the receiver at " + w.url.Host,
	}
	if said := channel.Clean(string(answer), 200); said != "" {
		e.Err = fmt.Errorf("receiver said: %s", said)
	}
	return e
}

// retryAfter reads both forms of the header; 0 when there is none. A day is
// the longest wish that is honoured, as no delivery lives longer.
func retryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), 24*time.Hour)
}

// transportError is a request without an answer. left: its head was written,
// so the receiver may have the message.
func (w *Webhook) transportError(parent context.Context, err error, left bool) *channel.Error {
	if refused, ok := errors.AsType[*channel.Error](err); ok {
		return refused
	}
	if errors.Is(parent.Err(), context.Canceled) {
		return &channel.Error{Class: channel.Interrupted, InDoubt: left, What: "the send was stopped", Err: err}
	}
	what := fmt.Sprintf("webhook %s cannot be reached", w.cfg.Name)
	if errors.Is(err, context.DeadlineExceeded) {
		what = fmt.Sprintf("webhook %s did not answer in time", w.cfg.Name)
	}
	return &channel.Error{
		Class: channel.Unavailable, InDoubt: left, What: what,
		Fix: "check the receiver at " + w.url.Host, Err: err,
	}
}

func (w *Webhook) redirectError(why string) *channel.Error {
	return &channel.Error{
		Class: channel.Rejected, What: fmt.Sprintf("webhook %s: %s", w.cfg.Name, why),
		Fix: "configure the address the redirects end at",
	}
}
