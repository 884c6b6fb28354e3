package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

const (
	defaultTimeout = 30 * time.Second // of one send, redirects included
	maxRedirects   = 3                // of one request
	maxAnswer      = 64 << 10         // bytes read of an answer
	maxProviderID  = 200              // characters kept of the receiver's id
)

// Config is one webhook.
type Config struct {
	Name         string
	URL          string
	Secret       string // reference; empty: not signed
	AllowPrivate bool
	Timeout      time.Duration // default 30 s
}

// Webhook is a channel; it is safe for concurrent use and holds no connection
// between sends. There is no http.Client around its transport: redirects are its own
// to judge.
type Webhook struct {
	cfg       Config
	url       *url.URL
	resolve   channel.Resolve
	transport *http.Transport
}

// New checks cfg and returns its channel. resolve may be nil when cfg names no
// secret. The secret itself is read at each send, so a rotation needs no
// restart.
func New(cfg Config, resolve channel.Resolve) (*Webhook, error) {
	d := channel.Definition{URL: cfg.URL, Secret: cfg.Secret, AllowPrivate: cfg.AllowPrivate}
	_, problem := d.CheckSecrets()
	if problem == "" {
		_, problem = check(d)
	}
	if problem != "" {
		return nil, fmt.Errorf("webhook %s: %s", cfg.Name, problem)
	}
	if cfg.Secret != "" && resolve == nil {
		return nil, fmt.Errorf("webhook %s: no way to read its secret", cfg.Name)
	}
	u, err := url.Parse(cfg.URL)
	if err != nil { // the error would quote the URL, which may hold a token
		return nil, fmt.Errorf("webhook %s: url cannot be read", cfg.Name)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Webhook{cfg: cfg, url: u, resolve: resolve, transport: newTransport(guard{cfg.AllowPrivate, u.Scheme == "http"}.control, nil)}, nil
}

// newTransport returns a transport that dials for each request, and checks each
// address with control. Without reused connections net/http has no reason to
// repeat a request, which it otherwise does for one that carries an
// Idempotency-Key.
func newTransport(control func(network, address string, c syscall.RawConn) error, r *net.Resolver) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Resolver: r, Control: control}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true, // what counts is the bytes that are read
		MaxResponseHeaderBytes: maxAnswer,
		TLSHandshakeTimeout:    10 * time.Second,
	}
}

// Name returns the name the configuration gave.
func (w *Webhook) Name() string { return w.cfg.Name }

// Guarantee returns [channel.Keyed]: dropping a known Idempotency-Key is the
// receiver's part of the contract.
func (w *Webhook) Guarantee() channel.Guarantee { return channel.Keyed }

// Destination returns the host and port of the URL, and a fingerprint of all of it: a
// receiver may be broken at one path alone, and a path may hold a token.
func (w *Webhook) Destination(channel.Message) string {
	return strings.ToLower(w.url.Host) + " " + channel.Fingerprint(w.cfg.URL)
}

// body is the JSON document a receiver gets.
type body struct {
	AgentID        string               `json:"agent_id"`
	ThreadID       string               `json:"thread_id"`
	EventID        int64                `json:"event_id"`
	Text           string               `json:"text"`
	ReplyContext   channel.ReplyContext `json:"reply_context"`
	Key            string               `json:"key"`
	Attempt        int                  `json:"attempt"`
	MaybeDuplicate bool                 `json:"maybe_duplicate"`
	CreatedAt      string               `json:"created_at"`
	Part           int                  `json:"part,omitempty"`
	More           bool                 `json:"more,omitempty"`
}

// Send posts m.
func (w *Webhook) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if len(m.ReplyContext) == 0 {
		return channel.Receipt{}, channel.Reject(channel.ReasonReplyContext, "the event has no reply_context", "answer an event that has one")
	}
	doc, err := json.Marshal(body{
		m.AgentID, m.ThreadID, m.EventID, m.Text, m.ReplyContext, m.Key, m.Attempt, m.MaybeDuplicate, m.CreatedAt, m.Part, m.More,
	})
	if err != nil {
		return channel.Receipt{}, &channel.Error{Class: channel.Rejected, Reason: channel.ReasonReplyContext, BeforeSend: true, What: "reply_context cannot be encoded", Err: err}
	}
	header, err := w.header(ctx, m, doc)
	if err != nil {
		return channel.Receipt{}, err
	}
	within, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	target := w.url
	for range maxRedirects + 1 {
		receipt, next, err := w.post(ctx, within, target, header, doc)
		if next == nil || err != nil {
			return receipt, err
		}
		if target, err = w.follow(next); err != nil {
			return channel.Receipt{}, err
		}
	}
	return channel.Receipt{}, w.redirectError(fmt.Sprintf("more than %d redirects", maxRedirects))
}

func (w *Webhook) header(ctx context.Context, m channel.Message, doc []byte) (http.Header, error) {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "theclaw-deliverer")
	h.Set("Idempotency-Key", m.Key)
	if m.Fence.Token != 0 {
		h.Set("X-TheClaw-Fence", m.Fence.Resource+"="+strconv.FormatInt(m.Fence.Token, 10))
	}
	if w.cfg.Secret == "" {
		return h, nil
	}
	secret, err := w.resolve(ctx, w.cfg.Secret)
	if err == nil && secret == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		// Unavailable, not Rejected: once the operator has put the secret in
		// place, everything that waited goes out.
		return nil, &channel.Error{
			Class: channel.Unavailable, What: fmt.Sprintf("the secret of webhook %s cannot be read", w.cfg.Name),
			Fix: "set " + channel.Clean(w.cfg.Secret, 200), Err: err,
		}
	}
	h.Set(SignatureHeader, Sign(secret, time.Now(), doc))
	return h, nil
}

// Sign returns the signature of a body. It binds the time to it, so that a recorded request grows
// stale.
func Sign(secret string, at time.Time, doc []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(doc)
	return "t=" + t + ",sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// post does one request. next is where a redirect leads; parent tells our own
// stop from the timeout of this send.
func (w *Webhook) post(parent, ctx context.Context, target *url.URL, header http.Header, doc []byte) (_ channel.Receipt, next *url.URL, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(doc))
	if err != nil {
		return channel.Receipt{}, nil, w.redirectError("the address cannot be read")
	}
	req.Header = header
	res, left, err := channel.RoundTrip(w.transport, req)
	if err != nil {
		return channel.Receipt{}, nil, w.transportError(parent, err, left)
	}
	defer res.Body.Close()
	// An answer that breaks off has still answered: the status decides.
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 == 3 && res.StatusCode != http.StatusNotModified {
		// 301, 302 and 303 turn a POST into a GET: the receiver would say 200
		// to a request without the message.
		if res.StatusCode != http.StatusTemporaryRedirect && res.StatusCode != http.StatusPermanentRedirect {
			return channel.Receipt{}, nil, w.redirectError(fmt.Sprintf("redirect %d would drop the message", res.StatusCode))
		}
		if next, err = res.Location(); err != nil {
			return channel.Receipt{}, nil, w.redirectError("redirect without an address")
		}
		return channel.Receipt{}, next, nil
	}
	if res.StatusCode/100 != 2 {
		return channel.Receipt{}, nil, w.statusError(res, answer)
	}
	return channel.Receipt{ProviderID: providerID(res, answer)}, nil, nil
}

// follow decides whether a redirect may be taken; its address is judged again
// when it is dialled.
func (w *Webhook) follow(to *url.URL) (*url.URL, error) {
	switch {
	case to.Scheme != w.url.Scheme:
		return nil, w.redirectError("redirect to another scheme")
	case to.User != nil:
		return nil, w.redirectError("redirect with credentials")
	case w.cfg.Secret != "" && !strings.EqualFold(to.Host, w.url.Host):
		return nil, w.redirectError("redirect of a signed message to another host")
	}
	return to, nil
}

func providerID(res *http.Response, answer []byte) string {
	if id := channel.Clean(res.Header.Get("X-Message-Id"), maxProviderID); id != "" {
		return id
	}
	var doc struct {
		ID any `json:"id"`
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber() // 64-bit ids do not fit a float
	if d.Decode(&doc) != nil {
		return "" // an answer need not be JSON
	}
	switch id := doc.ID.(type) {
	case string:
		return channel.Clean(id, maxProviderID)
	case json.Number:
		return channel.Clean(id.String(), maxProviderID)
	}
	return ""
}
