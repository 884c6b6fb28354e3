package oracle

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// A Side is one of those that are compared: a model or an engine, and the agent in it.
type Side struct {
	Engine
	Agent   string
	Subject int64 // inbox id of the event that the calls are about
	events  map[int64]store.Pending
	epochs  map[string]int // by id, in the order in which they were answered
}

// NewSide is agent of e.
func NewSide(e Engine, agent string) *Side {
	return &Side{Engine: e, Agent: agent, Subject: 1, events: map[int64]store.Pending{}, epochs: map[string]int{}}
}

// A Call is one call of the contract, made to any side.
type Call struct {
	Name string
	Make func(ctx context.Context, s *Side) (any, error)
}

// ThreadID is the conversation thread that every event of mode "x" belongs to.
const ThreadID = "threads/x"

func (s *Side) inbox() store.Ref { return store.Inbox(s.Agent) }

func (s *Side) thread() store.Ref { return store.Ref{Agent: s.Agent, Thread: ThreadID} }

// Tokens of both leases: calls carry the one in the middle unless their name says more.
const (
	lower  = 4
	usual  = 5
	higher = 6
)

func (s *Side) runner(token uint64) store.Fence {
	return store.Fence{Resource: "agent/" + s.Agent, Token: token}
}

func (s *Side) sender(token uint64) store.Fence {
	return store.Fence{Resource: "deliver/" + s.Agent, Token: token}
}

// event answers an inbox event and its key.
func (s *Side) event(ctx context.Context, id int64) (store.Pending, error) {
	if p, ok := s.events[id]; ok {
		return p, nil
	}
	e, key, err := s.InboxEvent(ctx, s.Agent, id)
	if err == nil {
		s.events[id] = store.Pending{Event: e, Key: key}
	}
	return s.events[id], err
}

// errs are the errors of the contract, by which answers are compared.
var errs = []error{
	store.ErrNotFound, store.ErrLeaseLost, store.ErrNoTurn, store.ErrNoDelivery, store.ErrNotDead, store.ErrKeyReused, store.ErrKeyMismatch,
	store.ErrNoConsumer, store.ErrStopped, store.ErrNoSession,
}

// Answer makes a call and puts its answer in words, without what two engines cannot have in
// common: uuids, hashes, the agent, and the value of a time that is set.
func (s *Side) Answer(ctx context.Context, c Call) string {
	out, err := c.Make(ctx, s)
	return words(out, err, s.common)
}

// Exact puts an answer in words; what is empty is left out.
func Exact(out any, err error) string {
	return words(out, err, func(_ string, v any) any { return v })
}

// words is an answer as JSON, with each value that is no list or object seen by value.
func words(out any, err error, value func(name string, v any) any) string {
	for _, e := range errs {
		if errors.Is(err, e) {
			return "error: " + e.Error()
		}
	}
	var v any
	raw, bad := json.Marshal(out)
	if bad == nil {
		bad = json.Unmarshal(raw, &v)
	}
	if err = errors.Join(err, bad); err != nil {
		return "error: " + err.Error()
	}
	raw, err = json.Marshal(bare("", v, value))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(raw)
}

// Account is everything that can be asked, in words, a line for each question.
func (s *Side) Account(ctx context.Context) string {
	var b strings.Builder
	for _, c := range s.Questions(ctx) {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, s.Answer(ctx, c))
	}
	return b.String()
}

// Questions are the calls that make up an account.
func (s *Side) Questions(ctx context.Context) []Call {
	all := store.Query{Limit: 1000}
	list := []Call{
		{"state", func(ctx context.Context, s *Side) (any, error) { return s.State(ctx, s.Agent) }},
		{"turns", func(ctx context.Context, s *Side) (any, error) {
			return s.ListTurns(ctx, s.Agent, store.ListTurns{Limit: 20})
		}},
		{"dead turns", func(ctx context.Context, s *Side) (any, error) {
			return s.ListTurns(ctx, s.Agent, store.ListTurns{Limit: 20, Fate: store.FateDead, Unresolved: true})
		}},
		{"deliveries", func(ctx context.Context, s *Side) (any, error) { return s.ListDeliveries(ctx, s.thread(), "", 0, 100) }},
		{"dead deliveries", func(ctx context.Context, s *Side) (any, error) {
			return s.ListDeliveries(ctx, s.thread(), store.DeliveryDead, 0, 100)
		}},
		{"info of inbox", func(ctx context.Context, s *Side) (any, error) { return s.Info(ctx, s.inbox()) }},
		{"info of thread", func(ctx context.Context, s *Side) (any, error) { return s.Info(ctx, s.thread()) }},
		{"session", func(ctx context.Context, s *Side) (any, error) { return s.Session(ctx, s.thread()) }},
		{"push k", pushed("k").Make},
		{"inbox", func(ctx context.Context, s *Side) (any, error) { return s.Read(ctx, s.inbox(), all) }},
		{"thread", func(ctx context.Context, s *Side) (any, error) { return s.Read(ctx, s.thread(), all) }},
	}
	for id := int64(1); ; id++ {
		if _, err := s.event(ctx, id); err != nil {
			return list
		}
		list = append(list, Call{fmt.Sprint("turn ", id), func(ctx context.Context, s *Side) (any, error) {
			return s.Turn(ctx, s.Agent, store.TurnQuery{InboxID: id, Route: routeOf})
		}}, Call{fmt.Sprint("origin ", id), func(ctx context.Context, s *Side) (any, error) { return s.Origin(ctx, s.Agent, id) }})
	}
}

// routeOf is the thread of an event: that of mode "x", or of another one.
func routeOf(e thread.Event, mode string) (string, error) {
	if strings.HasPrefix(e.Content, "bad") {
		return "", errors.New("no such peer")
	}
	return "threads/" + mode, nil
}

var (
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:\d+:[0-9a-f]{16})?`)
	hash   = regexp.MustCompile(`[0-9a-f]{64}`)
	epoch  = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:[0-9.:+-]+Z?`)
)

// common is a value without what two engines cannot have in common.
func (s *Side) common(name string, v any) any {
	text, ok := v.(string)
	switch {
	case name == "Wait" && v != 0.0:
		return 1
	case name == "Waited": // of an outage that may have begun in this millisecond
		return nil
	case !ok:
		return v
	}
	text = strings.ReplaceAll(text, s.Agent, "AGENT")
	if len(text) < len("2026-01-01T00:00:00Z") {
		return text
	}
	text = uuid.ReplaceAllStringFunc(text, func(found string) string { // of a key the id stays
		id, _, _ := strings.Cut(strings.TrimPrefix(found[36:], ":"), ":")
		return "U" + id
	})
	text = epoch.ReplaceAllStringFunc(text, func(id string) string {
		if s.epochs[id] == 0 {
			s.epochs[id] = len(s.epochs) + 1
		}
		return fmt.Sprint("EPOCH", s.epochs[id])
	})
	return moment.ReplaceAllString(hash.ReplaceAllString(text, "H"), "T")
}

// noTime is a time that is not set, as JSON.
const noTime = "0001-01-01T00:00:00Z"

// bare shows what is inside of results, and leaves out what is empty.
func bare(name string, v any, value func(name string, v any) any) any {
	switch list := v.(type) {
	case map[string]any:
		for k, x := range list {
			if list[k] = bare(k, x, value); list[k] == nil {
				delete(list, k)
			}
		}
		return list
	case []any:
		if len(list) == 0 {
			return nil
		}
		for i := range list {
			list[i] = bare("", list[i], value)
		}
		return list
	}
	if text, ok := v.(string); ok && name == "Result" {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			v = string(b)
		}
	}
	if v == "" || v == 0.0 || v == false || v == noTime {
		return nil
	}
	return value(name, v)
}
