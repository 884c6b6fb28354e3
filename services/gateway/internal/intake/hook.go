// Package intake takes in the messages of accounts: those that programs post ([Handler]), and
// those that platforms deliver ([Deps.Receive]). Each is answered when it is on disk.
//
//	POST /hooks/NAME --> account --> signature --> message --> its files --> registry: AcceptMessages --> answer, or events of the run
//	                        |           |             |        are stored            |
//	                       404         401           400                  200 refused, 429 and 503 later
//
//	platform --> receiver --> lane of the conversation --> registry: AcceptMessages --> acknowledgment
//	                            (albums are joined)                  |
//	                                                        typing, or a notice
//
// It promises that what was acknowledged is stored, or was refused with a notice where people
// expect one; that a repeat of a message, by its key, is stored once; and that messages of one
// conversation are stored in their order while others go on. A body that was posted is read only
// up to its limit, and interpreted only after its signature was found right.
//
// It keeps nothing that must survive it, and decides nothing about people: the registry does.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/tracing"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/gateway/internal/accounts"
	"github.com/theclaw/agents/services/gateway/internal/stream"
)

const (
	// MaxBody is the most bytes of a body.
	MaxBody = 1 << 20
	// MaxWait is how long a program can wait for a reply.
	MaxWait = time.Minute
	// maxWaiting is how many requests wait for a reply at a time; others are answered without one.
	maxWaiting = 64
	// acceptLimit bounds the call that stores a message.
	acceptLimit = 10 * time.Second
)

// Deps are what messages are taken in with.
type Deps struct {
	Accounts *accounts.Set
	Channels registryv1.ChannelServiceClient
	Turns    registryv1.TurnServiceClient
	Media    registryv1.MediaServiceClient
	// Files fetches the attachments that posts name by their addresses.
	Files *webhook.Fetcher
	// What commands are answered with.
	Agents    registryv1.AgentServiceClient
	Sessions  registryv1.SessionServiceClient
	Approvals registryv1.ApprovalServiceClient
	Questions registryv1.QuestionServiceClient
	Models    Models
	Version   string // of the program; empty: it is not shown
	// Streams follow the runs of messages for programs that want that.
	Streams *stream.Streams
	// Hooks calls the hooks of messages.
	Hooks   *hook.Caller
	Trace   *tracing.Tracer // nil: no traces
	Metrics *obs.GatewayMetrics
	Logger  *slog.Logger

	media chan struct{} // places for attachments in memory
	live  *live
}

// ForAll returns d with what all accounts share.
func (d Deps) ForAll() Deps {
	d.media, d.live = make(chan struct{}, mediaPlaces), newLive()
	return d
}

// Commands takes over the settings of the chat commands.
func (d Deps) Commands(c layer.Commands) { d.live.commands.Store(&c) }

// received traces a message that was accepted.
func (d Deps) received(ctx context.Context, account string, m *registryv1.AcceptedMessage, began time.Time) {
	if m.GetRunId() != "" {
		d.Trace.Received(ctx, m.GetRunId(), tracing.Where{AgentID: m.GetAgentId(), ThreadID: m.GetThreadId(), EventID: m.GetInboxId()}, account, began)
	}
}

// Handler serves POST /hooks/{name}. The context of its requests is one of [Serve].
type Handler struct {
	Deps
	waiting chan struct{}
}

// New returns a handler.
func New(d Deps) *Handler { return &Handler{d, make(chan struct{}, maxWaiting)} }

// answer is what a program gets.
type answer struct {
	Accepted  bool   `json:"accepted"`
	Duplicate bool   `json:"duplicate"`
	Agent     string `json:"agent,omitempty"`
	Session   string `json:"session,omitempty"`
	RunID     string `json:"run_id,omitempty"`
	Fate      string `json:"fate,omitempty"`
	Reply     string `json:"reply,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Missing are the attachments that did not arrive, each with the reason.
	Missing []string `json:"missing,omitempty"`

	dropped bool
}

// ServeHTTP takes in one message.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	name := r.PathValue("name")
	account, err := h.Accounts.Posted(r.Context(), name)
	if errors.Is(err, accounts.ErrUnknown) {
		Refuse(w, http.StatusNotFound, fault.New(codes.NotFound, fault.ChannelNotFound, "there is no such address", "'agentctl channels status' lists the accounts"))
		return
	}
	var out answer
	status := http.StatusServiceUnavailable
	if err == nil {
		out, status, err = h.take(w, r, account, began)
	} else {
		err = later("the account does not receive now", notUp) // 'agentctl channels status' shows why, to the owner
	}
	outcome := "error"
	switch {
	case err == nil && out.dropped:
		outcome = outcomeDropped
	case err == nil && out.Duplicate:
		outcome = "duplicate"
	case err == nil && out.Accepted:
		outcome = "accepted"
	case err == nil:
		outcome = "refused"
	}
	h.Metrics.AddUpdate(name, outcome, time.Since(began))
	switch {
	case outcome == "refused":
		h.Metrics.AddRefused(out.Reason)
	case err != nil && status < http.StatusInternalServerError:
		h.Metrics.AddRefused(fault.From(err).Reason)
	}
	if err != nil {
		Refuse(w, status, fault.From(err))
		return
	}
	if stream.Wanted(r) {
		h.stream(w, r, name, out)
	} else {
		status = http.StatusOK
		if out.Accepted {
			status, out.Fate, out.Reply = h.reply(r, out)
		}
		write(w, status, out)
	}
	fault.Point("G4")
}

// take stores the message of a request. With an error it returns the status that stands for it.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, account accounts.Account, began time.Time) (out answer, status int, err error) {
	if _, err := wait(r); err != nil {
		return out, http.StatusBadRequest, err
	}
	if _, err := stream.Last(r); err != nil && stream.Wanted(r) {
		return out, http.StatusBadRequest, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return out, http.StatusRequestEntityTooLarge, fault.New(codes.InvalidArgument, fault.InvalidArgument, "the body is longer than 1 MiB", "send a shorter text")
	}
	if err != nil {
		return out, http.StatusBadRequest, fault.New(codes.InvalidArgument, fault.InvalidArgument, "the body ended early", "send it again")
	}
	if err := h.signed(r, account, body); err != nil {
		return out, http.StatusUnauthorized, err
	}
	fault.Point("G1")
	done, ok := account.Take()
	if !ok {
		return out, http.StatusServiceUnavailable, later("too many messages of the account are taken in now", time.Second)
	}
	h.Metrics.SetInflight(account.Name, account.Taken())
	defer func() {
		done()
		h.Metrics.SetInflight(account.Name, account.Taken())
	}()
	u, err := webhook.Read(account.Name, body, h.Files)
	if err != nil {
		return out, http.StatusBadRequest, fault.New(codes.InvalidArgument, fault.InvalidArgument, err.Error(), "see docs/channels.md for the form of a message")
	}
	// What was sent completely is taken in, also when the program does not wait for the answer.
	posted := context.WithoutCancel(r.Context())
	if out.dropped, err = h.dropped(posted, account.Name, account.Type, u); err != nil {
		return out, http.StatusServiceUnavailable, err
	} else if out.dropped {
		out.Message = "a hook of this home dropped the message"
		return out, 0, nil
	}
	in, files := message(u), len(u.Attachments) > 0
	m, status, err := h.accept(posted, account.Name, in, files)
	if err == nil && files {
		m, status, err = h.acceptWithFiles(serving(r), account, u, in, m)
	}
	if err != nil {
		return out, status, err
	}
	switch m.GetOutcome() {
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER:
		status = http.StatusServiceUnavailable
		if m.GetReason() == fault.QuotaExceeded {
			status = http.StatusTooManyRequests
		}
		f := later(m.GetMessage(), m.GetRetryAfter().AsDuration())
		f.Reason = m.GetReason()
		return out, status, f
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED:
		if wait := m.GetRetryAfter().AsDuration(); wait > 0 { // a program knows how to wait
			f := later(m.GetMessage(), wait)
			f.Reason = m.GetReason()
			return out, http.StatusTooManyRequests, f
		}
		return answer{Reason: m.GetReason(), Message: m.GetMessage()}, 0, nil
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR:
		text := "this person may not write before an owner approves it"
		if m.GetCode() != "" {
			text += ": agentctl pair approve " + m.GetCode()
		}
		return answer{Reason: fault.PeerRefused, Message: text}, 0, nil
	}
	out = answer{
		Accepted: true, Duplicate: m.GetOutcome() == registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE,
		Agent: m.GetAgentId(), Session: m.GetSessionKey(), RunID: m.GetRunId(),
	}
	if !out.Duplicate {
		out.Missing = missing(in)
		h.Accounts.Accepted(account.Name, u.SentAt)
		h.received(r.Context(), account.Name, m, began)
	}
	return out, 0, nil
}

// accept passes a message to the registry; with check it asks what would become of the message. With an error it returns
// the status that stands for it.
func (h *Handler) accept(ctx context.Context, account string, m *registryv1.InboundMessage, check bool) (*registryv1.AcceptedMessage, int, error) {
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	got, err := h.Channels.AcceptMessages(ctx, &registryv1.AcceptMessagesRequest{Account: account, Messages: []*registryv1.InboundMessage{m}, Check: check})
	fault.Point("G3")
	if err != nil {
		f := fault.From(err)
		if f.Code == codes.InvalidArgument {
			return nil, http.StatusBadRequest, err
		}
		h.Logger.Warn("a message was not accepted", "account", account, "update_id", channel.Clean(m.GetKey(), 200), "error", fault.Chain(err))
		return nil, http.StatusServiceUnavailable, later("the message cannot be stored now", max(f.RetryAfter, time.Second))
	}
	if len(got.GetResults()) != 1 {
		return nil, http.StatusServiceUnavailable, later("the registry did not say what became of the message", time.Second)
	}
	return got.GetResults()[0], 0, nil
}

// acceptWithFiles takes in a message with attachments, of which checked says what would become of it. They are stored
// before the message, and only for one that will be: a repeat fetches nothing.
func (h *Handler) acceptWithFiles(ctx context.Context, account accounts.Account, u channel.Update, m *registryv1.InboundMessage, checked *registryv1.AcceptedMessage) (*registryv1.AcceptedMessage, int, error) {
	switch checked.GetOutcome() {
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED:
		if err := h.attach(ctx, account, checked.GetAgentId(), u, m); err != nil {
			return nil, http.StatusServiceUnavailable, err
		}
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT:
		nameFiles(u, m)
	case registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR: // the person asks to be let in
	default:
		return checked, 0, nil
	}
	return h.accept(context.WithoutCancel(ctx), account.Name, m, false)
}

// attach stores the attachments of a message for the agent that gets it. An error says that the program should post the
// message again: too many wait, or the service stops.
func (h *Handler) attach(ctx context.Context, account accounts.Account, agentID string, u channel.Update, m *registryv1.InboundMessage) error {
	if slices.ContainsFunc(u.Attachments, func(f channel.Attachment) bool { return f.Open != nil }) {
		done, ok := account.TakeWithFiles()
		if !ok {
			return later("too many messages of the account wait for their attachments", time.Second)
		}
		defer done()
	}
	within, cancel := context.WithTimeout(ctx, MaxFetch)
	defer cancel()
	files{h.Deps, account.Name, account.MediaMaxMiB, account.Files}.putAll(within, agentID, u, m)
	if ctx.Err() != nil {
		return later("the gateway stops", time.Second)
	}
	return nil
}

// Serve returns the context for the requests of a service that runs until ctx ends.
func Serve(ctx context.Context) context.Context { return context.WithValue(ctx, service{}, ctx) }

// service is the key of the context of the service in that of a request.
type service struct{}

// serving is the context of what a request began: it ends with the service, also when the program does not wait.
func serving(r *http.Request) context.Context {
	ctx, _ := r.Context().Value(service{}).(context.Context)
	return ctx
}

// signed checks who posts. Without a secret every program that reaches the address may, which is
// on loopback; what a proxy marks as passed on is refused.
func (h *Handler) signed(r *http.Request, account accounts.Account, body []byte) error {
	if account.Secret != "" {
		if err := webhook.Verify(account.Key, r.Header.Get(webhook.SignatureHeader), body, time.Now()); err != nil {
			return fault.New(codes.Unauthenticated, fault.ChannelSignature, err.Error(), "sign the body with the secret of the account ('agentctl channels sign "+account.Name+"' shows how), and check the clock")
		}
		return nil
	}
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(forwarded) != "" {
			return fault.New(codes.Unauthenticated, fault.ChannelSignature, "the account has no secret, and the request came through a proxy", "set channels."+account.Name+".secret")
		}
	}
	return nil
}

// message is an update for the registry, with valid and bounded texts.
func message(u channel.Update) *registryv1.InboundMessage {
	m := &registryv1.InboundMessage{
		Key: valid(u.Key), Kind: u.Kind, SessionId: valid(u.SessionID), PeerId: valid(u.PeerID), PeerName: cut(valid(u.PeerName), 256),
		PlatformThread: valid(u.Thread), Parent: valid(u.Parent), GuildId: valid(u.Guild), TeamId: valid(u.Team),
		Text: valid(u.Text), Mentioned: u.Mentioned, Bot: u.Bot, MessageId: valid(u.MessageID), EditOf: valid(u.EditOf),
	}
	if u.ReplyTo != nil {
		m.ReplyTo = &registryv1.ReplyTo{Id: valid(u.ReplyTo.ID), Text: cut(valid(u.ReplyTo.Text), 2000), Mine: u.ReplyTo.Mine}
	}
	if !u.SentAt.IsZero() {
		m.SentAt = timestamppb.New(u.SentAt)
	}
	if len(u.Extra) > 0 {
		m.Extra = make(map[string]string, len(u.Extra))
		for name, value := range u.Extra {
			m.Extra[valid(name)] = valid(value)
		}
	}
	return m
}

// valid is a text as UTF-8.
func valid(s string) string {
	s, _ = boundary.Text(s, 0)
	return s
}

// cut is the beginning of a text, of so many characters.
func cut(s string, most int) string {
	for i := range s {
		if most--; most < 0 {
			return s[:i]
		}
	}
	return s
}

// notUp is when to try an account again that does not receive.
const notUp = 10 * time.Second

// reply waits for the reply as long as the request says.
func (h *Handler) reply(r *http.Request, out answer) (status int, fate, reply string) {
	d, _ := wait(r)                // it was checked
	if d == 0 || out.RunID == "" { // context starts no run
		return http.StatusAccepted, "", ""
	}
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return http.StatusAccepted, "", ""
	}
	got, err := h.turn(r.Context(), out, d)
	if err != nil && r.Context().Err() == nil {
		h.Logger.Warn("a reply is not awaited any more", "agent_id", out.Agent, "run_id", out.RunID, "error", fault.Chain(err))
	}
	if fate = fateOf(got); fate == "" {
		return http.StatusAccepted, "", ""
	}
	return http.StatusOK, fate, got.GetReply()
}

// fateOf is the fate of a turn; empty: it has none yet.
func fateOf(t *registryv1.GetTurnResponse) string {
	if t.GetTurn().GetFate() == registryv1.Fate_FATE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(t.GetTurn().GetFate().String(), "FATE_"))
}

// wait is how long a request waits for the reply.
func wait(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxWait {
		return 0, fault.New(codes.InvalidArgument, fault.InvalidArgument, "wait is a duration from 0s to 60s", "for example ?wait=20s")
	}
	return d, nil
}

// later is the error of a message that may be sent again after a while.
func later(what string, after time.Duration) *fault.Error {
	f := fault.New(codes.Unavailable, fault.ServiceUnavailable, what, "send it again later")
	f.RetryAfter = after
	return f
}

// Refuse answers an error as JSON.
func Refuse(w http.ResponseWriter, status int, f *fault.Error) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
	write(w, status, struct {
		Error      string `json:"error"`
		Reason     string `json:"reason"`
		Suggestion string `json:"suggestion,omitempty"`
	}{f.What, f.Reason, f.Fix})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)                      // texts and truth values: it cannot fail
	_, _ = io.WriteString(w, b.String()) // a program that has gone away asks again
}
