// Package accounts keeps the accounts of a home as one gateway runs them: which there are, the
// state of each, and what it received.
//
//	settings --> Apply --> posted to:  off, up, auth, error, stopped
//	                   --> connects:   off, standby --> starting --> up, conflict, auth, error --> starting ...
//
// An account that connects to its platform has a lease, channel/NAME, which one gateway of the home has at a time:
//
//	standby or starting: Hold --granted--> receives --fails, auth--> Release --> waits --> Hold
//	                      ^                   |  '----conflict-----> waits, and keeps the lease
//	                      |                   |
//	                      '-----lost----------+------ctx ends------> Release
//
// It promises that a failure or a panic of one account changes no other, that a change of the
// settings touches only the accounts whose entries changed, that an account has one receiver
// at a time: the next one begins after the one before it has ended, and that a receiver runs only
// while its lease is to be trusted. An account that fails here gives its lease back, because another
// gateway may reach the platform.
//
// It does not receive: package intake does, which the function [Config.Receive] connects. It reads
// no file itself.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// State is the state of an account.
type State string

// The states.
const (
	Off      State = "off"      // enabled: false
	Starting State = "starting" // connects
	Up       State = "up"       // receives
	Conflict State = "conflict" // another reader uses its token; tried again
	Auth     State = "auth"     // its secret is refused or cannot be read
	Failed   State = "error"    // cannot receive, for the reason given; tried again where it connects
	Stopped  State = "stopped"  // the gateway does not listen
	Standby  State = "standby"  // another gateway has its lease and receives
)

const (
	// Hooks is where programs post to accounts: followed by the name of one.
	Hooks = "/hooks/"
	// MaxTaken is how many messages of an account are on their way at a time.
	MaxTaken = 200
	// maxWithFiles is how many of them wait for files that have to be fetched, where programs post
	// to the account, and maxFiles how many of those files are fetched at a time.
	maxWithFiles, maxFiles = 32, 4
	// conflictWait is the wait of an account whose token another reader uses: longer than a poll.
	conflictWait = 35 * time.Second
	// steady is how long an account is up until the wait after its next failure is the first again.
	steady = 10 * time.Minute
	// secretWait is how often a secret that was refused is read again.
	secretWait = time.Minute
)

// failed says when an account is started again.
var failed = pause.Backoff{First: time.Second, Last: time.Minute}

// Errors of [Set.Posted].
var (
	// ErrUnknown reports that no account of this name is posted to.
	ErrUnknown = errors.New("no such account")
	// ErrNotUp reports that the account does not receive now.
	ErrNotUp = errors.New("the account does not receive now")
)

// Account is an account that may receive now.
type Account struct {
	layer.Account
	// Key of its signatures; empty for an account without a secret.
	Key string

	places
}

// places are those of an account that is posted to.
type places struct {
	messages, withFiles chan struct{}
	// Files has a place for each file that is fetched at a time.
	Files chan struct{}
}

func newPlaces() places {
	return places{make(chan struct{}, MaxTaken), make(chan struct{}, maxWithFiles), make(chan struct{}, maxFiles)}
}

// Taken is how many messages of the account are on their way.
func (p places) Taken() int { return len(p.messages) }

// Take takes a place for a message, and returns how it is given back; false when all are taken.
func (p places) Take() (done func(), ok bool) { return take(p.messages) }

// TakeWithFiles takes a place for a message that has one already and waits for files that have to be fetched.
func (p places) TakeWithFiles() (done func(), ok bool) { return take(p.withFiles) }

func take(from chan struct{}) (done func(), ok bool) {
	select {
	case from <- struct{}{}:
		return func() { <-from }, true
	default:
		return nil, false
	}
}

// Status is an account as people see it.
type Status struct {
	Name, Type string
	State      State
	Since      time.Time
	In         int64         // messages that were accepted
	Notices    int64         // to people, that were sent by it
	Lag        time.Duration // of the last one that says when it was sent; negative: there was none
	Behind     time.Duration // of our clock behind that of its sender; 0: it does not show
	What       string        // the cause of the state
	Address    string        // where it is posted to
}

// Config is what a Set works with.
type Config struct {
	// Address is where programs post, http://127.0.0.1:18789 or what is before it; empty: the gateway does not
	// listen, for the reason Silent.
	Address, Silent string
	// Resolve reads a reference to a secret.
	Resolve channel.Resolve
	// Leases grants the leases of accounts, to the process Holder and for TTL (0: 15 s).
	Leases worker.Leases
	Holder string
	TTL    time.Duration
	// Receive takes in the updates of an account that connects to its platform until ctx ends or
	// its transport fails, as [channel.Receiver] does. It calls connected once it receives. What it
	// has stored carries the fence of the lease; a lease that is lost ends it with [lease.ErrLost].
	Receive func(ctx context.Context, a layer.Account, l Lease, connected func(identity, name string) error) error
	Metrics *obs.GatewayMetrics
	Logger  *slog.Logger
	// Changed is called when the state of an account changes.
	Changed func(Status)
}

// Lease is the lease under which an account receives.
type Lease interface {
	// Check returns nil while the lease is to be trusted, and reads the clock for it.
	Check() error
	// Fence puts the proof of the lease on the calls made with the returned context.
	Fence(ctx context.Context) context.Context
}

// proof is a lease that is held.
type proof struct {
	*worker.Held
	resource, holder string
}

// Fence implements [Lease].
func (p proof) Fence(ctx context.Context) context.Context {
	return rpc.WithFence(ctx, p.resource, p.Token(), p.holder)
}

// Set is the accounts. It is safe for concurrent use.
type Set struct {
	cfg   Config
	ctx   context.Context // of the receivers
	close context.CancelFunc

	mu   sync.Mutex
	list map[string]*account // nil: the settings have not been read yet
	// over has, by the name of an account, what is closed when its last receiver has ended: also
	// of one that was removed and is added again.
	over map[string]chan struct{}
}

type account struct {
	entry  layer.Account
	places places
	Status
	identity string             // at its platform, while it is up
	end      context.CancelFunc // of its receiver; nil: it has none
}

// New returns a set that knows no accounts yet.
func New(c Config) *Set {
	ctx, cancel := context.WithCancel(context.Background())
	return &Set{cfg: c, ctx: ctx, close: cancel, over: map[string]chan struct{}{}}
}

// Close ends all receivers and waits for them.
func (s *Set) Close() {
	s.close()
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.over))
	s.mu.Unlock()
	for _, over := range list {
		<-over
	}
}

// Apply takes over the accounts of the settings. What did not change goes on as it is.
func (s *Set) Apply(ctx context.Context, list []layer.Account) {
	s.mu.Lock()
	old := s.list
	s.list = make(map[string]*account, len(list))
	var changed []string
	for _, e := range list {
		a := old[e.Name]
		delete(old, e.Name)
		if a == nil || a.entry.Type != e.Type {
			if a != nil && a.end != nil {
				a.end()
			}
			a = &account{places: newPlaces(), Status: Status{Name: e.Name, Type: e.Type, Lag: -1}}
		}
		if !reflect.DeepEqual(a.entry, e) {
			changed = append(changed, e.Name)
		}
		a.entry = e
		s.list[e.Name] = a
	}
	s.mu.Unlock()
	for name, a := range old {
		s.cfg.Metrics.SetChannel(name, "")
		if a.end != nil {
			a.end()
		}
	}
	for _, name := range changed {
		_, _ = s.Restart(ctx, name)
	}
}

// Restart starts an account again; false when there is none of this name.
func (s *Set) Restart(ctx context.Context, name string) (Status, bool) {
	s.mu.Lock()
	a := s.list[name]
	if a == nil || !a.entry.Connects() {
		s.mu.Unlock()
		_, now, ok := s.start(ctx, name)
		return now, ok
	}
	defer s.mu.Unlock()
	if a.end != nil {
		a.end()
		a.end = nil
	}
	if !a.entry.Enabled {
		s.set(a, Off, whyOff)
		return a.Status, true
	}
	s.set(a, Starting, "")
	run, cancel := context.WithCancel(s.ctx)
	before, over := s.over[name], make(chan struct{})
	a.end, s.over[name] = cancel, over
	go s.run(run, a, a.entry, before, over)
	return a.Status, true
}

// whyOff is the cause of [Off].
const whyOff = "enabled: false in its settings"

// set notes the state of an account; mu is held.
func (s *Set) set(a *account, to State, what string) {
	a.What = what
	if a.State == to {
		return
	}
	a.State, a.Since = to, time.Now()
	if to != Up {
		a.identity = ""
	}
	if to == Standby {
		a.Lag = -1 // another gateway receives what is newer
	}
	s.cfg.Metrics.SetChannel(a.Name, string(to))
	s.cfg.Changed(a.Status)
}

// run keeps an account that connects to its platform up until ctx ends.
func (s *Set) run(ctx context.Context, a *account, entry layer.Account, before <-chan struct{}, over chan struct{}) {
	defer close(over)
	if before != nil {
		<-before
	}
	note := func(to State, what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil {
			s.set(a, to, what)
		}
	}
	var held *worker.Held
	var taken time.Time // when another gateway gave up the lease; zero: none had it
	release := func() {
		if held != nil {
			held.Release()
			held = nil
		}
	}
	defer release()
	for try := 0; ; try++ {
		if held == nil {
			var waited bool
			if held, waited = s.hold(ctx, entry.Name, note); held == nil {
				return
			}
			if waited {
				taken, try = time.Now(), 0
				note(Starting, s.own())
			}
		}
		secrets := s.secrets(ctx, entry)
		var up time.Time
		err := s.receive(held.Context(), entry, proof{held, lease.ChannelResource(entry.Name), s.cfg.Holder}, func(identity, name string) error {
			up = time.Now()
			return s.connected(ctx, a, identity, name)
		})
		if ctx.Err() != nil {
			return
		}
		s.cfg.Metrics.AddRestart(entry.Name)
		if held.Check() != nil || errors.Is(err, lease.ErrLost) {
			note(Starting, "the lease is lost: another gateway may receive")
			release()
			if try = -1; pause.For(ctx, failed.Wait(0)) != nil {
				return
			}
			continue
		}
		e := channel.AsError(err)
		if e == nil {
			e = &channel.Error{What: "it ended"}
		}
		if !up.IsZero() && time.Since(up) > steady {
			try = 0
		}
		what := e.What
		if e.Fix != "" {
			what += " - " + e.Fix
		}
		wait, state := max(failed.Wait(try), e.RetryAfter), Failed
		switch e.Reason {
		case channel.ReasonAuth:
			note(Auth, what+"; then "+reread(entry))
			release()
			for s.secrets(ctx, entry) == secrets {
				if pause.For(ctx, secretWait) != nil {
					return
				}
			}
			continue
		case channel.ReasonConflict:
			// The request that the last gateway left open at the platform ends with a conflict, too.
			if state = Conflict; time.Since(taken) > conflictWait {
				wait = conflictWait
			}
		}
		note(state, fmt.Sprintf("%s; next try in %s", what, wait.Round(time.Second)))
		if state == Failed { // a conflict has its cause at the platform: no other gateway is better off
			release()
		}
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}

// own is the lease of an account while this gateway has it, for people.
func (s *Set) own() string { return "lease " + lease.ServiceOf(s.cfg.Holder) }

// hold acquires the lease of an account; waited: another gateway had it until now. nil: ctx has ended.
func (s *Set) hold(ctx context.Context, name string, note func(State, string)) (held *worker.Held, waited bool) {
	req := &registryv1.AcquireLeaseRequest{
		// One run of an account at a time asks, so that all have one request id.
		Kind: registryv1.LeaseKind_LEASE_KIND_CHANNEL, Account: name, Holder: s.cfg.Holder, RequestId: "receive", Ttl: durationpb.New(s.cfg.TTL),
	}
	held, err := worker.Hold(ctx, s.cfg.Leases, req, s.cfg.Logger.With("account", name), func(holder string, err error) {
		switch f := fault.From(err); {
		case f.Reason == fault.LeaseHeld:
			waited = true
			note(Standby, "lease "+lease.ServiceOf(holder))
		case f.Code == codes.Unavailable || f.Code == codes.DeadlineExceeded:
			note(Starting, "waits for its lease: "+f.What)
		default:
			note(Failed, "no lease: "+f.What)
		}
	})
	if err != nil {
		return nil, false
	}
	return held, waited
}

// receive calls the receiver. One that panics has failed.
func (s *Set) receive(ctx context.Context, entry layer.Account, l Lease, connected func(identity, name string) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &channel.Error{What: "it broke off, see the log of the gateway"}
			s.cfg.Logger.Error("the receiver of an account panicked", "account", entry.Name, "error", fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	return s.cfg.Receive(ctx, entry, l, connected)
}

// connected notes that an account receives, as an identity that no other account has.
func (s *Set) connected(ctx context.Context, a *account, identity, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.list {
		if other != a && other.Type == a.Type && other.State == Up && other.identity == identity {
			return &channel.Error{
				Reason: channel.ReasonConflict, What: fmt.Sprintf("the account %s receives as %s already", other.Name, name),
				Fix: "give one of the two another token, or remove it",
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.set(a, Up, name+", "+s.own())
	a.identity = identity
	return nil
}

// references are where the secrets of an account are read; empty: it has none of that kind.
func references(entry layer.Account) []string {
	return []string{entry.Secret, entry.Token, entry.AppToken}
}

// reread is what has to be done after a secret of an account was corrected. A gateway has the
// variables of its start.
func reread(entry layer.Account) string {
	if slices.ContainsFunc(references(entry), func(ref string) bool { return strings.HasPrefix(ref, "env:") }) {
		return "start agentd again, which reads variables when it starts"
	}
	return "run: agentctl channels restart " + entry.Name
}

// secrets is a fingerprint of the secrets of an entry as they are now.
func (s *Set) secrets(ctx context.Context, entry layer.Account) string {
	var parts []string
	for _, ref := range references(entry) {
		if ref == "" {
			continue
		}
		value, err := s.cfg.Resolve(ctx, ref)
		parts = append(parts, value, fmt.Sprint(err))
	}
	return channel.Fingerprint(parts...)
}

// start decides the state of an account that is posted to, and returns it with its key. The secret is read without
// the lock: a file may take long, and other accounts do not wait for it.
func (s *Set) start(ctx context.Context, name string) (Account, Status, bool) {
	s.mu.Lock()
	a := s.list[name]
	if a == nil {
		s.mu.Unlock()
		return Account{}, Status{}, false
	}
	entry := a.entry
	s.mu.Unlock()
	key, to, what := s.decide(ctx, entry)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[name] != a || !reflect.DeepEqual(a.entry, entry) { // the settings changed meanwhile
		return Account{}, a.Status, s.list[name] != nil
	}
	a.Address = ""
	if to == Up {
		a.Address = s.cfg.Address + Hooks + name
	}
	s.set(a, to, what)
	return Account{entry, key, a.places}, a.Status, true
}

// decide returns the state that an entry has now, with the key of signatures.
func (s *Set) decide(ctx context.Context, entry layer.Account) (key string, to State, what string) {
	switch t, ok := catalog.Find(entry.Type); {
	case !entry.Enabled:
		return "", Off, whyOff
	case !ok || t.Receive != nil:
		return "", Failed, fmt.Sprintf("this gateway does not receive for the type %s", entry.Type)
	case s.cfg.Address == "":
		return "", Stopped, s.cfg.Silent
	case entry.Secret == "":
		return "", Up, "unsigned posts: no secret is set"
	}
	key, err := s.cfg.Resolve(ctx, entry.Secret)
	if err == nil && key == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", Auth, fmt.Sprintf("the secret %s cannot be used: %v", entry.Secret, err)
	}
	return key, Up, "signed posts"
}

// Posted returns an account that may be posted to now, with its secret as it is now. Errors:
// ErrUnknown, ErrNotUp.
func (s *Set) Posted(ctx context.Context, name string) (Account, error) {
	s.mu.Lock()
	a, ready := s.list[name], s.list != nil
	posted := a != nil && !a.entry.Connects()
	s.mu.Unlock()
	switch {
	case !ready:
		return Account{}, ErrNotUp
	case !posted:
		return Account{}, ErrUnknown
	}
	got, now, ok := s.start(ctx, name)
	_, known := catalog.Find(now.Type)
	switch {
	case !ok || !known || now.State == Off:
		return Account{}, ErrUnknown
	case now.State != Up || got.Name == "": // or its settings change now
		return Account{}, ErrNotUp
	}
	return got, nil
}

// Accepted notes a message of an account that was stored; sent is zero where it is unknown.
func (s *Set) Accepted(name string, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.list[name]; a != nil {
		a.In++
		if !sent.IsZero() {
			a.Lag = max(time.Since(sent), 0)
			a.Behind = max(time.Until(sent), 0)
			s.cfg.Metrics.SetLag(name, a.Lag)
		}
	}
}

// Noticed notes a notice that was sent by an account.
func (s *Set) Noticed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.list[name]; a != nil {
		a.Notices++
	}
}

// Statuses returns all accounts by name.
func (s *Set) Statuses() (list []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.list)) {
		list = append(list, s.list[name].Status)
	}
	return list
}
