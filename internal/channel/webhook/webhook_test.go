package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "s3cr3t-canary"

// receiver is a real HTTP server that records what it got and answers by
// script; the last answer repeats.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	headers []http.Header
	bodies  []string
}

func newReceiver(t *testing.T, script ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(r.handler(script))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) handler(script []http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		n := len(r.bodies)
		r.bodies, r.headers = append(r.bodies, req.Method+" "+string(got)), append(r.headers, req.Header)
		r.mu.Unlock()
		if len(script) > 0 {
			script[min(n, len(script)-1)](w, req)
		}
	})
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, "because\n\x1b[2J of "+canary[:2])
	}
}

func resolve(_ context.Context, ref string) (string, error) {
	if ref == "env:HOOK" {
		return canary, nil
	}
	return "", errors.New("no such variable")
}

func open(t *testing.T, cfg Config) *Webhook {
	t.Helper()
	cfg.Name = "hook"
	w, err := New(cfg, resolve)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func message() channel.Message {
	return channel.Message{
		AgentID: "amy", ThreadID: "threads/peers/tg-1", EventID: 7, Key: strings.Repeat("ab", 32), Attempt: 2, MaybeDuplicate: true,
		Text: "<hi>\n\"you\"", ReplyContext: channel.ReplyContext{"peer_id": json.RawMessage(`"1"`), "visibility": json.RawMessage(`[1]`)},
		CreatedAt: "2026-11-20T10:15:02.474Z", Fence: channel.Fence{Resource: "deliver/amy", Token: 42},
	}
}

func failure(t *testing.T, err error, want channel.Class) *channel.Error {
	t.Helper()
	e := channel.AsError(err)
	if e == nil || e.Class != want {
		t.Fatalf("%+v, want %v", err, want)
	}
	for _, text := range []string{e.Error(), e.Fix, fmt.Sprint(e.Err)} {
		if strings.Contains(text, canary) || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%q leaks or breaks the line", text)
		}
	}
	return e
}

// TestSend shows the whole request, with S0-131 (the key travels) and the
// signature computed here from the bytes that arrived.
func TestSend(t *testing.T) {
	r := newReceiver(t, status(202, "X-Message-Id", "m-1\t2"))
	w := open(t, Config{URL: r.URL + "/in?token=" + canary, Secret: "env:HOOK", AllowPrivate: true})
	got, err := w.Send(t.Context(), message())
	if err != nil || got.ProviderID != "m-1 2" {
		t.Fatalf("%+v %v", got, err)
	}
	method, doc, _ := strings.Cut(r.bodies[0], " ")
	var sent map[string]any
	if err := json.Unmarshal([]byte(doc), &sent); err != nil || method != http.MethodPost {
		t.Fatal(method, err)
	}
	want := map[string]any{
		"agent_id": "amy", "thread_id": "threads/peers/tg-1", "event_id": 7.0, "text": "<hi>\n\"you\"", "key": message().Key,
		"reply_context": map[string]any{"peer_id": "1", "visibility": []any{1.0}},
		"attempt":       2.0, "maybe_duplicate": true, "created_at": "2026-11-20T10:15:02.474Z",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
	h := r.headers[0]
	if h.Get("Idempotency-Key") != message().Key || h.Get("X-TheClaw-Fence") != "deliver/amy=42" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%v", h)
	}
	at, sum, ok := strings.Cut(strings.TrimPrefix(h.Get("X-TheClaw-Signature"), "t="), ",sha256=")
	mac := hmac.New(sha256.New, []byte(canary))
	io.WriteString(mac, at+"."+doc)
	if !ok || sum != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %q does not verify", h.Get("X-TheClaw-Signature"))
	}
	if w.Name() != "hook" || w.Guarantee() != channel.Keyed || !strings.HasPrefix(w.Destination(message()), strings.TrimPrefix(r.URL, "http://")+" ") {
		t.Error(w.Name(), w.Guarantee(), w.Destination(message()))
	}
}

func TestProviderID(t *testing.T) {
	for doc, want := range map[string]string{
		`{"id":"m1"}`: "m1", `{"id":9007199254740993}`: "9007199254740993", `{"id":{}}`: "", `ok`: "", ``: "",
		`{"id":"` + strings.Repeat("x", 300) + `"}`:                    strings.Repeat("x", 200) + "...",
		`{"pad":"` + strings.Repeat("x", maxAnswer) + `","id":"late"}`: "", // beyond the cap
	} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, doc) })
		got, err := open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), message())
		if err != nil || got.ProviderID != want {
			t.Errorf("%.40s: %+v %v", doc, got, err)
		}
	}
}

// TestServerErrorTwice: 500, 500, 200 with one key (S0-127, S0-131).
func TestServerErrorTwice(t *testing.T) {
	r := newReceiver(t, status(500), status(500), status(200))
	w := open(t, Config{URL: r.URL, AllowPrivate: true})
	for range 2 {
		_, err := w.Send(t.Context(), message())
		if e := failure(t, err, channel.Failed); !e.InDoubt || e.What != "webhook hook answered 500" {
			t.Errorf("%+v", e)
		}
	}
	if _, err := w.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	for _, h := range r.headers {
		if h.Get("Idempotency-Key") != message().Key {
			t.Error("the key changed")
		}
	}
	if r.count() != 3 {
		t.Errorf("%d requests", r.count())
	}
}

func TestAnswers(t *testing.T) {
	for code, want := range map[int]channel.Class{
		408: channel.Unavailable, 425: channel.Unavailable, 429: channel.Unavailable,
		502: channel.Unavailable, 503: channel.Unavailable, 504: channel.Unavailable,
		409: channel.Failed, 500: channel.Failed, 501: channel.Failed,
		// A4: what cannot heal ends at once, and does not hold up its conversation for 65 s.
		401: channel.Rejected, 403: channel.Rejected, 421: channel.Rejected, 423: channel.Rejected, 424: channel.Rejected,
		400: channel.Rejected, 404: channel.Rejected, 410: channel.Rejected, 413: channel.Rejected, 422: channel.Rejected,
		301: channel.Rejected, 302: channel.Rejected, 303: channel.Rejected, 307: channel.Rejected, 304: channel.Rejected,
	} {
		r := newReceiver(t, status(code))
		_, err := open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), message())
		failure(t, err, want)
		if r.count() != 1 {
			t.Errorf("%d: %d requests", code, r.count())
		}
	}
}

func TestRetryAfterIsReported(t *testing.T) {
	r := newReceiver(t, status(429, "Retry-After", "17"))
	_, err := open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), message())
	if e := failure(t, err, channel.Unavailable); e.RetryAfter != 17*time.Second || e.InDoubt {
		t.Errorf("%+v", e)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "0": 0, "99999999": 24 * time.Hour,
		"Fri, 20 Nov 2026 12:01:00 GMT": time.Minute, "Fri, 20 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestUnreachable: nobody listens, so nothing can have left.
func TestUnreachable(t *testing.T) {
	r := newReceiver(t)
	url := r.URL + "/" + canary
	r.Close()
	_, err := open(t, Config{URL: url, AllowPrivate: true}).Send(t.Context(), message())
	if e := failure(t, err, channel.Unavailable); e.InDoubt {
		t.Error("in doubt, although no connection was made")
	}
}

// TestHangs: no answer in time is Unavailable and in doubt; our own stop is
// neither the receiver's fault nor certain.
func TestHangs(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{})
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	hang := newReceiver(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	defer close(release)
	_, err := open(t, Config{URL: slow.URL, AllowPrivate: true, Timeout: 200 * time.Millisecond}).Send(t.Context(), message())
	if e := failure(t, err, channel.Unavailable); !strings.Contains(e.What, "in time") {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err = open(t, Config{URL: hang.URL, AllowPrivate: true}).Send(ctx, message())
	if e := failure(t, err, channel.Interrupted); !e.InDoubt {
		t.Error("the receiver had it")
	}
}

// TestDropped: the connection breaks after the request. It is in doubt and is
// not repeated by net/http, whose repeat would lack the flag.
func TestDropped(t *testing.T) {
	r := newReceiver(t, status(200), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w := open(t, Config{URL: r.URL, AllowPrivate: true})
	if _, err := w.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	_, err := w.Send(t.Context(), message())
	if e := failure(t, err, channel.Unavailable); !e.InDoubt || r.count() != 2 {
		t.Errorf("%+v, %d requests", e, r.count())
	}
}

func TestSecretMissing(t *testing.T) {
	r := newReceiver(t)
	for _, ref := range []string{"env:GONE", "file:/gone"} {
		_, err := open(t, Config{URL: r.URL, AllowPrivate: true, Secret: ref}).Send(t.Context(), message())
		if e := failure(t, err, channel.Unavailable); e.Fix != "set "+ref {
			t.Errorf("%+v", e)
		}
	}
	if r.count() != 0 {
		t.Error("sent without its signature")
	}
}

// TestNoReplyContext is S0-126.
func TestNoReplyContext(t *testing.T) {
	r := newReceiver(t)
	m := message()
	m.ReplyContext = nil
	_, err := open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), m)
	if e := failure(t, err, channel.Rejected); e.Reason != channel.ReasonReplyContext || r.count() != 0 {
		t.Errorf("%+v", e)
	}
	m.ReplyContext = channel.ReplyContext{"x": json.RawMessage(`{`)}
	_, err = open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), m)
	failure(t, err, channel.Rejected)
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{URL: "http://example.org/" + canary},
		{URL: "ftp://example.org/" + canary, AllowPrivate: true},
		{URL: "https:///" + canary},
		{URL: "https://:443/" + canary},
		{URL: "https://u:" + canary + "@example.org"},
		{URL: ":" + canary},
		{URL: "https://example.org/", Secret: canary},
	} {
		if _, err := New(cfg, resolve); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%v: %v", cfg, err)
		}
	}
	if _, err := New(Config{URL: "https://example.org/", Secret: "env:HOOK"}, nil); err == nil {
		t.Error("a secret nobody can read")
	}
}

// TestProxyIgnored: a proxy of the environment sees nothing.
func TestProxyIgnored(t *testing.T) {
	if open(t, Config{URL: "https://example.org"}).transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

// TestBrokenAnswer: an answer that breaks off has still said 200.
func TestBrokenAnswer(t *testing.T) {
	res := &http.Response{Header: http.Header{}}
	got, _ := io.ReadAll(io.LimitReader(iotest.TimeoutReader(strings.NewReader(`{"id":"m`)), maxAnswer))
	if id := providerID(res, got); id != "" {
		t.Errorf("%q", id)
	}
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := open(t, Config{URL: r.URL, AllowPrivate: true}).Send(t.Context(), message()); err != nil {
		t.Error(err)
	}
}
