package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/theclaw/agents/internal/obs/redact"
)

// Log keys are fixed so that one grep follows a message through all services.
const (
	KeyAgentID      = "agent_id"
	KeyThreadID     = "thread_id"
	KeyConsumerID   = "consumer_id"
	KeyEventID      = "event_id"
	KeyRunID        = "run_id"
	KeyFencingToken = "fencing_token"
	KeyRequestID    = "request_id"
)

// LogOptions configure [NewLogger]; the zero value is text at INFO with a fresh
// Redactor.
type LogOptions struct {
	Format   string                                // "text" (default) or "json"
	Level    *slog.LevelVar                        // may be changed while running; nil is INFO
	Redactor *redact.Redactor                      // nil: patterns only, no registered secrets
	Attrs    func(ctx context.Context) []slog.Attr // a fresh slice per call, added to each record that has not the key itself, e.g. the request id
}

// NewLogger returns a logger that writes one redacted line per record to w. It
// fails only on an unknown format.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	if o.Level == nil {
		o.Level = new(slog.LevelVar)
	}
	if o.Redactor == nil {
		o.Redactor = redact.New()
	}
	ho := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: o.Redactor.ReplaceAttr}
	var h slog.Handler
	switch o.Format {
	case "", "text":
		h = slog.NewTextHandler(w, ho)
	case "json":
		h = slog.NewJSONHandler(w, ho)
	default:
		return nil, fmt.Errorf("make logger: unknown format %q, want text or json", o.Format)
	}
	if o.Attrs != nil {
		h = contextHandler{h, o.Attrs}
	}
	return slog.New(h), nil
}

// ParseLevel reads debug, info, warn or error in any case; "" is INFO.
func ParseLevel(s string) (slog.Level, error) {
	if s == "" {
		return slog.LevelInfo, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return slog.LevelInfo, fmt.Errorf("parse log level: unknown level %q, want debug, info, warn or error", s)
	}
	return l, nil
}

// contextHandler adds the attributes that travel in the context.
type contextHandler struct {
	slog.Handler
	attrs func(ctx context.Context) []slog.Attr
}

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if as := h.attrs(ctx); len(as) > 0 {
		r = r.Clone()
		r.Attrs(func(own slog.Attr) bool { // what the call site says goes first
			as = slices.DeleteFunc(as, func(a slog.Attr) bool { return a.Key == own.Key })
			return true
		})
		r.AddAttrs(as...)
	}
	return h.Handler.Handle(ctx, r)
}

func (h contextHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(as), h.attrs}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name), h.attrs}
}
