package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/markup"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/source"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// maxCommand is how many characters of a command a notice shows that cannot show all of it.
	maxCommand = 500
	// maxApproval is how many bytes the notice of an approval has at most.
	maxApproval = 4 << 10
	// showAgain is how soon a notice is sent again that reached no owner.
	showAgain = time.Minute
)

// live are the accounts that receive now.
type live struct {
	commands atomic.Pointer[layer.Commands] // of the settings; nil: they are not known yet
	hooks    atomic.Pointer[[]hook.Hook]    // of received messages

	mu       sync.Mutex
	accounts map[string]*Account
	came     chan struct{} // has one when an account has come up
}

// settings are those of the commands.
func (l *live) settings() layer.Commands {
	if c := l.commands.Load(); c != nil {
		return *c
	}
	return layer.Commands{}
}

func newLive() *live { return &live{accounts: map[string]*Account{}, came: make(chan struct{}, 1)} }

func (l *live) add(a *Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accounts[a.name] = a
	poke(l.came)
}

func (l *live) remove(a *Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accounts[a.name] == a {
		delete(l.accounts, a.name)
	}
}

func (l *live) named(name string) *Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts[name]
}

// of returns the accounts of a type by name.
func (l *live) of(kind string) (out []*Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		if a := l.accounts[name]; a.kind.Name == kind {
			out = append(out, a)
		}
	}
	return out
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Decisions shows owners in their direct chats, or in the chat of the run, what waits for their decision, and people
// what has become of the questions of their agents elsewhere, and that they were approved. It keeps nothing: a gateway
// that starts shows once more what waits.
type Decisions struct {
	Deps

	changed  chan struct{} // has one when waiting or owners changed
	admitted *admitted

	mu      sync.Mutex
	owners  []string // of the settings, as TYPE:PEER
	waiting map[string]*registryv1.WatchApprovalsResponse
	shown   map[string]*shown // by the id of one that waits, or may wait: the registry can be away
}

// shown is to which owners an approval was sent, or in the chat of which address.
type shown struct {
	to    map[string]bool
	until time.Time // when the approval expires
}

// Owners takes over the owners of the settings.
func (d *Decisions) Owners(list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owners = list
	poke(d.changed)
}

// NewDecisions returns one; call Run.
func NewDecisions(d Deps) *Decisions {
	return &Decisions{Deps: d, changed: make(chan struct{}, 1), admitted: newAdmitted(), waiting: map[string]*registryv1.WatchApprovalsResponse{}, shown: map[string]*shown{}}
}

// Run works until ctx ends.
func (d *Decisions) Run(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { repeat(ctx, d.watchApprovals) })
	g.Go(func() { repeat(ctx, d.watchQuestions) })
	g.Go(func() { repeat(ctx, d.watchPairings) })
	g.Go(func() { d.notifyAdmitted(ctx) })
	defer g.Wait()
	for {
		d.show(ctx)
		select {
		case <-d.changed:
		case <-d.live.came:
			poke(d.admitted.changed)
		case <-time.After(showAgain):
		case <-ctx.Done():
			return
		}
	}
}

// repeat follows a stream until ctx ends.
func repeat(ctx context.Context, follow func(context.Context, func()) error) {
	for failures := 0; ctx.Err() == nil; failures++ {
		_ = follow(ctx, func() { failures = 0 }) // the registry starts again, or has gone: it is asked again
		_ = pause.For(ctx, again.Wait(failures))
	}
}

func (d *Decisions) watchApprovals(ctx context.Context, received func()) error {
	w, err := d.Approvals.WatchApprovals(ctx, &registryv1.WatchApprovalsRequest{})
	if err != nil {
		return err
	}
	d.mu.Lock()
	clear(d.waiting) // the stream begins with what waits now
	d.mu.Unlock()
	for {
		m, err := w.Recv()
		if err != nil {
			return err
		}
		received()
		a := m.GetApproval()
		id := a.GetApprovalId()
		d.mu.Lock()
		switch {
		case a.GetState() != registryv1.ApprovalState_APPROVAL_STATE_PENDING:
			delete(d.waiting, id)
			delete(d.shown, id)
		case d.waiting[id] == nil:
			d.waiting[id] = m
			poke(d.changed)
		}
		d.mu.Unlock()
	}
}

// watchQuestions says in the chat of a question that it was answered elsewhere, or that its time is
// over. What was answered in the chat itself is known there.
func (d *Decisions) watchQuestions(ctx context.Context, received func()) error {
	w, err := d.Questions.WatchQuestions(ctx, &registryv1.WatchQuestionsRequest{})
	if err != nil {
		return err
	}
	for {
		m, err := w.Recv()
		if err != nil {
			return err
		}
		received()
		q := m.GetQuestion()
		from, _, err := source.ParseLenient(q.GetPeer())
		if err != nil || from.Kind != source.External {
			continue
		}
		text := ""
		switch {
		case q.GetState() == registryv1.QuestionState_QUESTION_STATE_EXPIRED:
			text = "The time to answer is over: " + q.GetText()
		case q.GetState() == registryv1.QuestionState_QUESTION_STATE_ANSWERED && elsewhere(q, from):
			text = fmt.Sprintf("Answered elsewhere: %s - %s", q.GetText(), q.GetAnswer())
		default:
			continue
		}
		if a := d.live.named(from.ChannelID); a != nil && a.kind.Name == from.ChannelType {
			_ = a.notify(channel.Update{Key: q.GetQuestionId(), Kind: from.SessionType, SessionID: from.SessionID, PeerID: from.PeerID, Thread: m.GetPlatformThread()}, "question", text)
		}
	}
}

// elsewhere reports whether another one answered than the person who was asked.
func elsewhere(q *registryv1.Question, asked source.Address) bool {
	person, ok := strings.CutPrefix(q.GetBy(), "person:")
	return q.GetBy() == "owner" || ok && person != asked.ChannelType+":"+asked.PeerID
}

// show sends each owner what was not shown yet.
func (d *Decisions) show(ctx context.Context) {
	d.mu.Lock()
	maps.DeleteFunc(d.shown, func(id string, s *shown) bool { return d.waiting[id] == nil && time.Now().After(s.until) })
	list := slices.SortedFunc(maps.Values(d.waiting), func(a, b *registryv1.WatchApprovalsResponse) int {
		return a.GetApproval().GetRequestedAt().AsTime().Compare(b.GetApproval().GetRequestedAt().AsTime())
	})
	list = slices.DeleteFunc(list, func(m *registryv1.WatchApprovalsResponse) bool {
		return m.GetNotify() == registryv1.ApprovalNotify_APPROVAL_NOTIFY_NONE
	})
	owners := slices.Clone(d.owners)
	d.mu.Unlock()
	if len(list) == 0 {
		return
	}
	// Those who were made owners with their approval.
	within, cancel := context.WithTimeout(ctx, acceptLimit)
	paired, err := d.Channels.ListPairings(within, &registryv1.ListPairingsRequest{State: registryv1.PairingState_PAIRING_STATE_APPROVED})
	cancel()
	if err != nil {
		return // with the next change, or after a while
	}
	for _, p := range paired.GetPairings() {
		if owner := p.GetType() + ":" + p.GetPeerId(); p.GetOwner() && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	for _, m := range list {
		a := m.GetApproval()
		if from, ok := origin(m, owners); ok {
			if d.open(a, m.GetSource()) && d.sendTo(from, m) {
				d.sent(a, m.GetSource())
			}
			continue
		}
		for _, owner := range owners {
			if d.open(a, owner) && d.send(ctx, owner, a) {
				d.sent(a, owner)
			}
		}
	}
}

// origin is the address of who wrote the message of the run, where the notice is shown in its chat; false: it is sent
// to the owners, because the settings say so, or no owner wrote it on a platform.
func origin(m *registryv1.WatchApprovalsResponse, owners []string) (source.Address, bool) {
	if m.GetNotify() != registryv1.ApprovalNotify_APPROVAL_NOTIFY_ORIGIN {
		return source.Address{}, false
	}
	from, _, err := source.ParseLenient(m.GetSource())
	return from, err == nil && from.Kind == source.External && slices.Contains(owners, from.ChannelType+":"+from.PeerID)
}

// sendTo sends an approval to the chat of a run. An account that does not receive here may do so at another gateway, or
// later.
func (d *Decisions) sendTo(from source.Address, m *registryv1.WatchApprovalsResponse) bool {
	account, a := d.live.named(from.ChannelID), m.GetApproval()
	if account == nil || account.kind.Name != from.ChannelType {
		return false
	}
	u := channel.Update{Key: a.GetApprovalId(), Kind: from.SessionType, SessionID: from.SessionID, PeerID: from.PeerID, Thread: m.GetPlatformThread()}
	text, buttons := approvalNotice(a, account.kind.Prefix(), account.fits)
	return account.notify(u, "approval", text, buttons...) == nil
}

// open reports whether an approval still waits, and was not shown to an owner, or in the chat of an address.
func (d *Decisions) open(a *registryv1.Approval, to string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.shown[a.GetApprovalId()]
	return d.waiting[a.GetApprovalId()] != nil && (s == nil || !s.to[to])
}

func (d *Decisions) sent(a *registryv1.Approval, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shown[a.GetApprovalId()] == nil {
		d.shown[a.GetApprovalId()] = &shown{map[string]bool{}, a.GetExpiresAt().AsTime()}
	}
	d.shown[a.GetApprovalId()].to[to] = true
}

// send sends an approval to an owner over the first account of the type that reaches the person.
func (d *Decisions) send(ctx context.Context, owner string, a *registryv1.Approval) bool {
	kind, peer, _ := strings.Cut(owner, ":")
	for _, account := range d.live.of(kind) {
		session, err := account.direct(ctx, peer)
		if err != nil {
			continue
		}
		u := channel.Update{Key: a.GetApprovalId(), Kind: "dm", SessionID: session, PeerID: peer}
		text, buttons := approvalNotice(a, account.kind.Prefix(), account.fits)
		if account.notify(u, "approval", text, buttons...) == nil {
			return true
		}
	}
	return false
}

// direct is the direct conversation of the account with a person.
func (a *Account) direct(ctx context.Context, peer string) (string, error) {
	f, ok := a.out.(channel.Finder)
	if !ok {
		return peer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	session, err := f.Find(ctx, peer)
	if err == nil && session == "" {
		err = errors.New("no conversation")
	}
	return session, err
}

// fits reports whether a text is sent as one message, with buttons.
func (a *Account) fits(text string) bool {
	if len(text) > maxApproval {
		return false
	}
	l, ok := a.out.(channel.Limiter)
	if !ok {
		return true
	}
	limit := l.Limit()
	return len(pieces(limit, text)) <= 1 && limit.Length(text) <= cmp.Or(limit.Buttons, limit.Max)
}

// approvalNotice is a question for an owner in one message that fits, with its buttons. A button approves only what
// the message shows completely: Always needs the entries that it adds, and one that shows the beginning of a command
// has no button that approves. The command is last, so that nothing of the reason can pass for a part of it. The answers
// that people write begin with prefix.
func approvalNotice(a *registryv1.Approval, prefix string, fits func(string) bool) (text string, buttons []channel.Button) {
	id, command := a.GetApprovalId(), visible(a.GetCommand())
	once := channel.Button{Text: "Approve once", Command: "/approve " + id + " once"}
	deny := channel.Button{Text: "Deny", Command: "/deny " + id}
	note := ""
	if len(a.GetPatterns()) > 0 {
		note = "\nAlways allows from now on:" + entries(a)
		if text = approvalText(a, prefix, "once, always", note, command); fits(text) {
			return text, []channel.Button{once, {Text: "Always", Command: "/approve " + id + " always"}, deny}
		}
		note = "\nWhat always would allow is too long for this message: 'agentctl approvals list --json' shows it."
	}
	if text = approvalText(a, prefix, "once", note, command); fits(text) {
		return text, []channel.Button{once, deny}
	}
	all := utf8.RuneCountInString(command)
	for n := min(all, maxCommand); ; n /= 2 {
		part := fmt.Sprintf("\nThis message has the first %d of %d characters. "+
			"Read all of them with 'agentctl approvals list --json' before you approve.", n, all)
		if text = approvalText(a, prefix, "once", part, cut(command, n)); n <= 1 || fits(text) {
			return text, []channel.Button{deny}
		}
	}
}

// approvalText is an approval with the answers to it, a note, and the command or its beginning.
func approvalText(a *registryv1.Approval, prefix, modes, note, command string) string {
	wants, what := wanted(a)
	text := a.GetAgentId() + " wants to " + wants + "."
	if a.GetReason() != "" {
		text += "\nReason: " + markup.Code(channel.Clean(a.GetReason(), maxCommand))
	}
	if a.GetExternal() {
		text += "\nText from outside takes part in this conversation."
	}
	left := time.Until(a.GetExpiresAt().AsTime()).Round(time.Minute)
	id := cmp.Or(a.GetShortId(), a.GetApprovalId())
	text += fmt.Sprintf("\nReply %sapprove %s [%s] or %sdeny %s (%d min)", prefix, id, modes, prefix, id, max(int(left.Minutes()), 1))
	return text + note + "\nThe " + what + ":\n" + markup.Fenced(command)
}

// wanted is what an approval is for, and what its text is.
func wanted(a *registryv1.Approval) (wants, what string) {
	switch a.GetKind() {
	case registryv1.ApprovalKind_APPROVAL_KIND_TOOL:
		return "call the tool " + markup.Code(channel.Clean(a.GetTool(), 200)), "call"
	case registryv1.ApprovalKind_APPROVAL_KIND_AGENT:
		return "make an agent", "request"
	case registryv1.ApprovalKind_APPROVAL_KIND_PLAN:
		return "carry out a plan", "plan"
	}
	return "run a command in " + markup.Code(channel.Clean(a.GetCwd(), 200)), "command"
}

// entries are what the answer always adds to the allow list of an agent, each in a line.
func entries(a *registryv1.Approval) string {
	var b strings.Builder
	for _, p := range a.GetPatterns() {
		rest := "with any arguments"
		if len(p.GetArgs()) > 0 {
			rest = "with any further arguments"
		}
		words := visible(execpolicy.Join(append([]string{p.GetPattern()}, p.GetArgs()...)))
		b.WriteString("\n" + markup.Code(strings.ReplaceAll(words, "\n", `\n`)) + " " + rest)
	}
	return b.String()
}

// visible is a text in which each character is seen: those that are not, or that change the order of others, are
// written as \u and their number. Lines and tabs stay.
func visible(s string) string {
	var b strings.Builder
	for _, r := range valid(s) {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
