package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/redact"
)

const secret = "canary/4711+Zq"

// S2-09: a log is lines of text or of JSON, without secrets in any kind of value.
func TestLoggerRedactsEveryKindOfValue(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var buf bytes.Buffer
		log, err := obs.NewLogger(&buf, obs.LogOptions{
			Format: format, Redactor: redact.New(secret),
			Attrs: func(context.Context) []slog.Attr { return []slog.Attr{slog.String(obs.KeyRequestID, "r1")} },
		})
		if err != nil {
			t.Fatal(err)
		}
		log.With("bound", secret).WithGroup("g").Error("failed "+secret+"\nforged line", "err", errors.New("cause "+secret),
			"bytes", []byte(secret), "struct", struct{ A string }{secret}, "password", "pw", "n", 5, slog.Group("in", "v", secret))
		out := buf.String()
		if strings.Contains(out, "canary") || strings.Contains(out, "pw\n") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: leaked or more than one line: %s", format, out)
		}
		if !strings.Contains(out, "r1") || !strings.Contains(out, "request_id") {
			t.Errorf("%s: no request id: %s", format, out)
		}
		buf.Reset()
		log.Info("own", obs.KeyRequestID, "r2")
		if out := buf.String(); !strings.Contains(out, "r2") || strings.Contains(out, "r1") {
			t.Errorf("%s: request id twice: %s", format, out)
		}
		if format == "json" && !json.Valid(buf.Bytes()) {
			t.Errorf("not JSON: %s", out)
		}
	}
	if _, err := obs.NewLogger(new(bytes.Buffer), obs.LogOptions{Format: "xml"}); err == nil {
		t.Error("unknown format accepted")
	}
}

func TestLoggerLevelChangesWhileRunning(t *testing.T) {
	var buf bytes.Buffer
	level := new(slog.LevelVar)
	log, err := obs.NewLogger(&buf, obs.LogOptions{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("one")
	l, err := obs.ParseLevel("Debug")
	if err != nil {
		t.Fatal(err)
	}
	level.Set(l)
	log.Debug("two")
	if got := buf.String(); strings.Contains(got, "one") || !strings.Contains(got, "two") {
		t.Errorf("log = %q", got)
	}
	if _, err := obs.ParseLevel("loud"); err == nil {
		t.Error("unknown level accepted")
	}
}
