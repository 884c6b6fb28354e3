//go:build proof

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// anyTime is the label of a kill at a random instant.
const anyTime = "any"

// channelLabels are the instants at which the matrix of channels kills: those of a message on its
// way in and of its answer on the way back, and those of its acceptance, of its epoch and of its
// delivery.
var channelLabels = append(slices.Clone(fault.Channel), "T0.before", "T0.after", "E1.after", "T7.after", "D2.before", "D2.after", anyTime)

// rare are the labels that a load passes only some times.
var rare = []string{"G5", "C1", "E1.after", "N1", "G2", "B1"}

// channelBlows are the labels in turn, without end, at their first and later hits.
func channelBlows(chance *rand.Rand) iter.Seq[blow] {
	return func(yield func(blow) bool) {
		for round := 0; ; round++ {
			for _, label := range channelLabels {
				b := blow{label: label, hit: 1 + round%2}
				if round >= 2 {
					b.hit = 1 + chance.IntN(2)
				}
				if !slices.Contains(rare, label) {
					b.hit += chance.IntN(4)
				}
				if !yield(b) {
					return
				}
			}
		}
	}
}

// channelFigures are what the matrix counts. lost, dup, refusedIn and violations must be 0.
type channelFigures struct {
	messages, lost, dup, refusedIn, flagged, notices, violations int
}

// channelMatrix is what the workers of the matrix share.
type channelMatrix struct {
	channelFigures

	mu     sync.Mutex
	next   func() (blow, bool)
	left   int // blows that are not handed out
	kills  int
	labels map[string]int
}

// part hands out the blows for one home; none when there are enough.
func (m *channelMatrix) part(most int) (out []blow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; len(out) < most && m.left > 0; m.left-- {
		b, _ := m.next()
		out = append(out, b)
	}
	return out
}

// TestChannelMatrix kills agentd at each instant of a message between a platform and an agent, and
// at random ones, while people on each type of channel write, send files, use commands and are
// paired. Each message is stored once and answered once, in its order; what a platform shows twice
// is flagged where the type has no other way; nothing of refused people is stored. Then the same
// load meets a build that acknowledges before it stores, which must lose messages. KILLS and SEED
// in the environment size and replay it.
func TestChannelMatrix(t *testing.T) {
	seed, chance := seed(t)
	next, stop := iter.Pull(channelBlows(chance))
	defer stop()
	for _, c := range catalog.Types {
		if !slices.ContainsFunc(channelTypes, func(own channelType) bool { return own.name == c.Name }) {
			t.Errorf("the matrix has no row for the type %s", c.Name)
		}
	}
	m := &channelMatrix{labels: map[string]int{}, next: next, left: int(setting(t, "KILLS", 28))}
	want := m.left
	most := min(max((want+workers-1)/workers, 1), len(channelLabels))
	var g sync.WaitGroup
	for range workers {
		g.Go(func() {
			for part := m.part(most); len(part) > 0 && !t.Failed(); part = m.part(most) {
				m.site(t, part, channelTypes, false)
			}
		})
	}
	g.Wait()
	fmt.Fprintf(os.Stdout, "channel-matrix kills=%d labels=%d/%d types=%d messages=%d lost=%d dup=%d refused_in=%d flagged=%d notices_again=%d violations=%d seed=%d\n",
		m.kills, len(m.labels), len(channelLabels), len(channelTypes), m.messages, m.lost, m.dup, m.refusedIn, m.flagged, m.notices, m.violations, seed)
	for _, label := range channelLabels {
		if m.labels[label] == 0 && want >= len(channelLabels) {
			t.Errorf("nothing was killed at %s", label)
		}
	}

	control := &channelMatrix{labels: map[string]int{}}
	i := slices.IndexFunc(channelTypes, func(c channelType) bool { return c.name == "telegram" })
	blows := []blow{{label: "G2", hit: 1}, {label: "G1", hit: 6}, {label: "G3", hit: 1}, {label: "T0.before", hit: 2}}
	control.site(t, blows, channelTypes[i:i+1], true)
	fmt.Fprintf(os.Stdout, "channel-matrix control lost=%d kills=%d messages=%d\n", control.lost, control.kills, control.messages)
	if control.lost == 0 {
		t.Error("a build that acknowledges before it stores lost nothing: the matrix would not detect it")
	}
}

// workers is how many homes are killed at the same time: most of a kill is the wait for a start.
const workers = 3

// matrixAgent answers all accounts.
const matrixAgent = "admin"

// saying is one message that a person writes.
type saying struct {
	token   string // in it and in its answer; empty: it is a command
	command string
	file    bool
	may     bool     // it need not be answered
	early   bool     // written before the person was paired: if the platform delivers it again, it is stored behind later ones
	blocks  []saying // further parts of its answer, which is sent in blocks
}

// person writes to one account.
type person struct {
	channelType
	phone   phone
	id      int
	secret  bool // is never paired: nothing of the person may be stored
	code    string
	waiting []saying // until the person is paired
	lines   []saying // that were written
}

// channelSite is one home whose accounts are all the types.
type channelSite struct {
	*world.Site
	t       *testing.T
	env     []string
	types   []channelType
	phones  []phone
	people  []*person
	written int
	control bool
}

// site strikes one home and then checks all that happened in it.
func (m *channelMatrix) site(t *testing.T, part []blow, types []channelType, control bool) {
	s := &channelSite{Site: world.NewSite(t, program(t)), t: t, types: types, control: control}
	at := freeAddress(t)
	var accounts strings.Builder
	for _, c := range types {
		p, env := c.open(t, "http://"+at)
		s.phones, s.env = append(s.phones, p), append(s.env, env...)
		var known []string
		for id := firstKnown; id < firstKnown+200; id++ {
			known = append(known, fmt.Sprintf("'%s'", p.peer(id)))
		}
		fmt.Fprintf(&accounts, "  %s: {type: %s, rate: 0, dm: pairing, allow_from: [%s], %s}\n", c.name, c.name, strings.Join(known, ", "), p.entry())
	}
	if control {
		s.env = append(s.env, ackFirst+"=1")
	}
	check(t, os.MkdirAll(s.Home, 0o700))
	check(t, os.WriteFile(filepath.Join(s.Home, "theclaw.yaml"), []byte("gateway: {http: \""+at+"\"}\nchannels:\n"+accounts.String()), 0o600))
	p := s.start(blow{label: "G5", hit: 1}, "say")
	s.Create(t, matrixAgent, "reply: {blocks: on, block: {min: 64, max: 100}}")
	if !control {
		// A session of a platform that is not stored yet cannot be resumed.
		p.Says("failpoint G5:1:say")
	}
	p.Kill()
	seed1, seed2 := rand.Uint64(), rand.Uint64()
	chance := rand.New(rand.NewPCG(seed1, seed2))
	for n, b := range part {
		m.strike(s, n, b, chance)
	}
	p = s.start(blow{}, "")
	f := s.audit(p)
	if p.Kill(); f.lost+f.dup+f.refusedIn+f.violations > 0 && !control {
		t.Errorf("after %+v; the log of the last start:\n%s", part, p.Log())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages, m.lost, m.dup, m.refusedIn = m.messages+f.messages, m.lost+f.lost, m.dup+f.dup, m.refusedIn+f.refusedIn
	m.flagged, m.notices, m.violations = m.flagged+f.flagged, m.notices+f.notices, m.violations+f.violations
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// freeAddress is an address of loopback that nothing listens at.
func freeAddress(t testing.TB) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

// start starts agentd with a failpoint, which does what; without a label it has none.
func (s *channelSite) start(b blow, what string) *world.Process {
	env := slices.Clone(s.env)
	if b.label != "" && b.label != anyTime {
		env = append(env, strings.TrimSuffix(fmt.Sprintf("%s=%s:%d:%s", failpoint, b.label, b.hit, what), ":"))
	}
	return s.StartWith(s.t, env, append([]string{"all"}, flags...)...)
}

// strike makes people write and deals one blow.
func (m *channelMatrix) strike(s *channelSite, n int, b blow, chance *rand.Rand) {
	p := s.start(b, "")
	defer p.Kill()
	s.write(n, b.label)
	s.approve()
	limit := 20 * time.Second
	if b.label == anyTime {
		limit = time.Duration(chance.Int64N(int64(time.Second)))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	hit := b.label == anyTime
	select {
	case <-timer.C:
	case <-p.Done():
		if hit = p.Killed(); !hit {
			s.t.Errorf("%+v: agentd ended; its log:\n%s", b, p.Log())
		}
	}
	if !hit {
		s.t.Logf("no message met %+v: %d answers are missing; the log:\n%s", b, s.missing(), p.Log())
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kills++
	m.labels[b.label]++
}

// Ids of people: those who are known to the accounts, and the others.
const (
	firstKnown   = 1001
	firstUnknown = 2001
)

// write makes new people on each channel write: one who passes the label of the blow, and one who
// just writes. Once one of each channel is paired, and another one is never.
func (s *channelSite) write(n int, label string) {
	for i, c := range s.types {
		add := func(id int, lines ...saying) *person {
			p := &person{channelType: c, phone: s.phones[i], id: id}
			s.people = append(s.people, p)
			s.say(p, lines...)
			return p
		}
		known := firstKnown + 2*n
		a, b, d := s.next(), s.next(), s.next()
		switch kind := map[string]string{"G2": "file", "C1": "stop", "E1.after": "new", "N1": "info", "B1": "blocks"}[label]; {
		case kind == "blocks":
			a.blocks = []saying{s.next(), s.next()}
			add(known, a, b, d)
		case kind == "file" && c.files, kind == "" && n%3 == 0 && c.files:
			a.file, b.file = true, n%2 == 0
			add(known, a, b, d)
		case kind == "info" && c.commands != "":
			add(known, a, saying{command: "help"}, b)
		case kind == "new" && c.commands != "", kind == "" && n%3 == 1 && c.commands != "":
			add(known, a, saying{command: "new"}, b, d)
		case kind == "stop" && c.commands != "", kind == "" && c.commands != "":
			a.may, b.may = true, true // the command may end it
			add(known, a, saying{command: "stop"}, b, saying{command: "stop"}, d)
		default:
			add(known, a, b, d)
		}
		add(known+1, s.next(), s.next(), s.next())
		if n == 0 && !s.control {
			first := s.next()
			first.may, first.early = true, true // it is answered only if it is delivered once more after the approval
			p := add(firstUnknown, first)
			p.waiting = []saying{s.next(), s.next()}
			p = add(firstUnknown + 1)
			p.secret = true
		}
	}
	for _, p := range s.people {
		if p.secret {
			p.phone.say(p.id, "say: "+refusedText, "")
		}
	}
}

// refusedText is what people write who are never paired.
const refusedText = "a-text-of-a-stranger"

// next is a new message.
func (s *channelSite) next() saying {
	s.written++
	token := fmt.Sprintf("m%d;", s.written)
	return saying{token: token}
}

// filler makes a part of an answer long enough for a block.
var filler = " " + strings.Repeat("word ", 14) + "end."

func (s *channelSite) say(p *person, lines ...saying) {
	for _, l := range lines {
		text, file := "say: "+l.token, ""
		if l.token == "" {
			text = p.commands + l.command
		}
		if l.file {
			file = fileOf(l)
		}
		p.lines = append(p.lines, l)
		for _, more := range l.blocks {
			text += filler + "\n\n" + more.token
			p.lines = append(p.lines, more)
		}
		p.phone.say(p.id, text, file)
	}
}

func fileOf(l saying) string { return strings.TrimSuffix(l.token, ";") + ".txt" }

var codeForm = regexp.MustCompile(`(?:Code: |approve )([A-HJ-NP-Z2-9]{8})\b`)

// approve lets people in who were sent a code; they then write on.
func (s *channelSite) approve() {
	for _, p := range s.people {
		if len(p.waiting) == 0 {
			continue
		}
		code := ""
		for _, text := range p.phone.heard(p.id) {
			if m := codeForm.FindStringSubmatch(text); m != nil {
				code = m[1]
			}
		}
		if code == "" || code == p.code {
			continue
		}
		err := s.resolve(p, code)
		switch f := fault.From(err); {
		case err == nil:
			s.say(p, p.waiting...)
			p.waiting = nil
		case fault.Is(err, fault.PairingNotFound):
			p.code = code // another start made another one, which the person is sent
		case f.Code != codes.Unavailable && f.Code != codes.Canceled && f.Code != codes.DeadlineExceeded && f.Code != codes.Unauthenticated:
			s.t.Errorf("approve %s: %v", code, err)
		}
	}
}

// resolve approves a person by a code. A call whose answer was lost has approved the person as well.
func (s *channelSite) resolve(p *person, code string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	_, err := s.Channels.ResolvePairing(ctx, &registryv1.ResolvePairingRequest{Code: code, Decision: registryv1.PairingDecision_PAIRING_DECISION_APPROVE})
	if !fault.Is(err, fault.PairingNotFound) {
		return err
	}
	list, other := s.Channels.ListPairings(ctx, &registryv1.ListPairingsRequest{Account: p.name, State: registryv1.PairingState_PAIRING_STATE_APPROVED})
	if other != nil {
		return other
	}
	if slices.ContainsFunc(list.GetPairings(), func(r *registryv1.Pairing) bool { return r.GetPeerId() == p.phone.peer(p.id) }) {
		return nil
	}
	return err
}

// heard sorts what a person was sent: answers by token, answers of commands, and notices.
type heard struct {
	order  []string
	tokens map[string]int

	commands, infos, welcomes int
}

// tokenForm finds the parts of an answer. One that is sent in blocks may be sent in fewer after a kill.
var tokenForm = regexp.MustCompile(`(?m)^m\d+;`)

func (p *person) heard() heard {
	h := heard{tokens: map[string]int{}}
	for _, text := range p.phone.heard(p.id) {
		switch tokens := tokenForm.FindAllString(text, -1); {
		case len(tokens) > 0:
			for _, token := range tokens {
				if h.tokens[token]++; h.tokens[token] == 1 {
					h.order = append(h.order, token)
				}
			}
		case strings.HasPrefix(text, "Commands:"):
			h.infos++
		case codeForm.MatchString(text):
		case strings.HasPrefix(text, "You may write to this assistant now"): // sent again when a kill came before it was reported
			h.welcomes++
		case strings.HasPrefix(text, "this person may not write"): // the program posts for a person who is not paired
		default:
			h.commands++
		}
	}
	return h
}

// missing are the tokens that were not answered, and the commands.
func (p *person) missing() (out []string) {
	h := p.heard()
	commands := 0
	for _, l := range p.lines {
		switch {
		case l.command == "help":
			if h.infos == 0 {
				out = append(out, l.command)
			}
		case l.token == "":
			if commands++; h.commands < commands {
				out = append(out, l.command)
			}
		case !l.may && h.tokens[l.token] == 0:
			out = append(out, l.token)
		}
	}
	for _, l := range p.waiting {
		out = append(out, l.token)
	}
	return out
}

// missing counts the answers that are missing.
func (s *channelSite) missing() (n int) {
	for _, p := range s.people {
		n += len(p.missing())
	}
	return n
}

// ended waits until everything is answered, or nothing more will be.
func (s *channelSite) ended(ctx context.Context) {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		s.approve()
		missing := s.missing()
		calm := !slices.ContainsFunc(s.phones, func(p phone) bool { return !p.calm() })
		if calm && (missing == 0 || s.control) {
			r, err := s.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: matrixAgent})
			if err == nil && r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0 {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Errorf("%d answers are missing; the platforms are calm: %v", missing, calm) // audit lists them
			return
		}
	}
}

// audit waits for the end and checks what every person has read, and what is stored.
func (s *channelSite) audit(p *world.Process) (f channelFigures) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	s.ended(ctx)
	s.stored(&f)
	for _, p := range s.people {
		f.person(s, p)
	}
	if s.control {
		return f
	}
	// I22: nothing of a person who may not write is in any file.
	err := filepath.WalkDir(s.Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), refusedText) {
			finding(s.t, &f.refusedIn, "%s has the text of a refused person", path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	check(s.t, err)
	if strings.Contains(p.Log(), refusedText) {
		finding(s.t, &f.refusedIn, "the log has the text of a refused person")
	}
	for _, v := range violations(s.t, s.Home, invariant.Options{Live: true, Drained: true}) {
		finding(s.t, &f.violations, "%s", v)
	}
	return f
}

// flagged counts the deliveries to a person that may have been sent more than once.
func (s *channelSite) flagged(p *person) (n int) {
	req := &registryv1.ListDeliveriesRequest{AgentId: matrixAgent, ThreadId: route.Thread(route.PerPeer, route.Tuple{ChannelID: p.name, PeerID: p.phone.peer(p.id)}), PageSize: 1000}
	r, err := s.Deliveries.ListDeliveries(s.t.Context(), req)
	check(s.t, err)
	for _, d := range r.GetDeliveries() {
		if d.GetMaybeDuplicate() {
			n++
		}
	}
	return n
}

// person checks what one person has read.
func (f *channelFigures) person(s *channelSite, p *person) {
	f.messages += len(p.lines)
	report := func(count *int, format string, args ...any) {
		if s.control {
			*count++
			return
		}
		finding(s.t, count, "%s, person %d: "+format, append([]any{p.name, p.id}, args...)...)
	}
	for _, missing := range p.missing() {
		report(&f.lost, "%s was not answered: %q", missing, p.phone.heard(p.id))
	}
	h := p.heard()
	more, repeated, commands, infos := 0, 0, 0, 0 // answers too many, and of how many messages
	var order []string
	for _, l := range p.lines {
		switch {
		case l.command == "help":
			infos++
		case l.token == "":
			commands++
		case h.tokens[l.token] > 0:
			if l.early {
				h.order = slices.DeleteFunc(h.order, func(token string) bool { return token == l.token })
			} else {
				order = append(order, l.token)
			}
			if n := h.tokens[l.token]; n > 1 {
				more, repeated = more+n-1, repeated+1
			}
			delete(h.tokens, l.token)
		}
	}
	if n := h.commands - commands; n > 0 {
		more, repeated = more+n, repeated+1
	}
	f.notices += max(h.infos-infos, 0) + max(h.welcomes-1, 0)
	flagged := 0
	if more > 0 {
		flagged = s.flagged(p)
	}
	if repeated > flagged || more > 0 && !p.repeats {
		report(&f.dup, "%d answers too many, to %d messages, %d deliveries are flagged: %q", more, repeated, flagged, p.phone.heard(p.id))
	} else {
		f.flagged += more
	}
	if len(h.tokens) > 0 {
		report(&f.violations, "answers to other messages: %v", h.tokens)
	}
	if !slices.Equal(order, h.order) {
		report(&f.violations, "answers %v, want the order %v", h.order, order)
	}
	for _, l := range p.lines {
		if !l.file || s.control {
			continue
		}
		list, err := filepath.Glob(filepath.Join(s.Home, "agents", matrixAgent, "workdir", "inbox", "*", fileOf(l)))
		check(s.t, err)
		if len(list) != 1 {
			report(&f.lost, "the file %s is at %q", fileOf(l), list)
		} else if b, err := os.ReadFile(list[0]); err != nil || string(b) != fileOf(l) {
			report(&f.violations, "the file %s has %q, %v", fileOf(l), b, err)
		}
	}
}

// stored checks that each message is one event (I21).
func (s *channelSite) stored(f *channelFigures) {
	events := map[string]int{}
	for _, e := range s.Events(s.t, matrixAgent, "inbox", "") {
		if token := regexp.MustCompile(`say: (m\d+;)`).FindStringSubmatch(e.GetContent()); token != nil {
			events[token[1]]++
		}
	}
	for token, n := range events {
		if n > 1 {
			finding(s.t, &f.violations, "I21: %s is stored %d times", token, n)
		}
	}
}
