package registry_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// A receiver continues where it stopped; another bot begins without a cursor.
func TestCursors(t *testing.T) { backendtest.Each(t, testCursors) }

func testCursors(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	setHome(t, o, w, account)
	get := func(identity, name string) string {
		t.Helper()
		r, err := w.Channels.GetCursor(t.Context(), &registryv1.GetCursorRequest{Account: "wh", Identity: identity, Name: name})
		return backendtest.Must(t, r, err).GetValue()
	}
	put := func(account, value string) error {
		_, err := w.Channels.PutCursor(t.Context(), &registryv1.PutCursorRequest{Account: account, Identity: "bot", Name: "updates", Value: value})
		return err
	}
	for _, value := range []string{"41", "42", ""} {
		if err := put("wh", value); err != nil {
			t.Fatal(err)
		}
		if got := get("bot", "updates"); got != value {
			t.Errorf("got %q, want %q", got, value)
		}
	}
	if err := put("wh", "43"); err != nil {
		t.Fatal(err)
	}
	if a, b := get("other", "updates"), get("bot", "history"); a != "" || b != "" {
		t.Errorf("other cursors are %q and %q", a, b)
	}
	if err := put("none", "1"); !fault.Is(err, fault.ChannelNotFound) {
		t.Errorf("an unknown account: %v", err)
	}
}

const (
	paired      = registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR
	pairApprove = registryv1.PairingDecision_PAIRING_DECISION_APPROVE
	pairDeny    = registryv1.PairingDecision_PAIRING_DECISION_DENY
	pairBlock   = registryv1.PairingDecision_PAIRING_DECISION_BLOCK
	pairRevoke  = registryv1.PairingDecision_PAIRING_DECISION_REVOKE
)

// private is an account that gives strangers codes.
const private = "owners: ['webhook:boss']\nchannels:\n  wh: {type: webhook, dm: pairing, allow_from: [ann], groups: {allow: [g1], mode: always}}\n  two: {type: webhook}\n"

func resolve(t *testing.T, w *backendtest.World, req *registryv1.ResolvePairingRequest) (*registryv1.Pairing, error) {
	t.Helper()
	r, err := w.Channels.ResolvePairing(t.Context(), req)
	return r.GetPairing(), err
}

func pairings(t *testing.T, w *backendtest.World) (out []string) {
	t.Helper()
	r, err := w.Channels.ListPairings(t.Context(), &registryv1.ListPairingsRequest{Account: "wh"})
	for _, p := range backendtest.Must(t, r, err).GetPairings() {
		out = append(out, fmt.Sprintf("%s %s %d", p.GetPeerId(), strings.ToLower(strings.TrimPrefix(p.GetState().String(), "PAIRING_STATE_")), p.GetMessages()))
	}
	return out
}

// A stranger gets a code, once, and nothing of the message is stored; an owner approves, and the person may write. A
// person who is blocked gets no answer, also in groups; one whose pairing is revoked is a stranger again.
func TestPairing(t *testing.T) { backendtest.Each(t, testPairing) }

func testPairing(t *testing.T, o backendtest.Options) {
	metrics := prometheus.NewRegistry()
	o.Change = func(d *registry.Deps) { d.Metrics = obs.NewRegistryMetrics(metrics) }
	w := o.Start(t, registry.Config{})
	counted := func(want string) {
		t.Helper()
		if got := gauges(t, metrics, "theclaw_registry_pairings"); got != want {
			t.Errorf("counted %q, want %q", got, want)
		}
	}
	w.Create("main")
	setHome(t, o, w, private)
	const canary = "canary-of-a-stranger"
	named := inbound("1", "bob", canary)
	named.PeerName = "Bob\u202e\n"
	first := accept(t, w, named)
	if first.GetOutcome() != paired || !first.GetNotify() || len(first.GetCode()) != 8 || first.GetAgentId() != "" {
		t.Fatalf("a stranger: %v", first)
	}
	if again := accept(t, w, named); again.GetOutcome() != paired || again.GetCode() != first.GetCode() || !again.GetNotify() {
		t.Errorf("the same message again, whose answer may be lost: %v, want the code %s", again, first.GetCode())
	}
	for i := range 3 {
		if m := accept(t, w, inbound(fmt.Sprint("more", i), "bob", canary)); m.GetOutcome() != paired || m.GetCode() != "" || m.GetNotify() {
			t.Errorf("another message: %v", m)
		}
	}
	if got := pairings(t, w); !slices.Equal(got, []string{"bob pending 4"}) {
		t.Errorf("pairings %q", got)
	}
	counted("pending 1")
	searchFiles(t, o.Home, first.GetCode()) // its hash alone is stored
	for what, req := range map[string]*registryv1.ResolvePairingRequest{
		"a wrong code":      {Code: "AAAAAAAA", Decision: pairApprove},
		"an unknown person": {Account: "wh", PeerId: "eve", Decision: pairBlock},
		"another account":   {Account: "two", PeerId: "bob", Decision: pairApprove},
	} {
		if _, err := resolve(t, w, req); !fault.Is(err, fault.PairingNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, req := range map[string]*registryv1.ResolvePairingRequest{
		"no person":           {Decision: pairApprove},
		"a code and a person": {Code: first.GetCode(), Account: "wh", PeerId: "bob", Decision: pairApprove},
		"a person alone":      {PeerId: "bob", Decision: pairApprove},
	} {
		if _, err := resolve(t, w, req); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	code := strings.ToLower(first.GetCode()[:4]) + "-" + first.GetCode()[4:]
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove}); err != nil || p.GetPeerName() != "Bob" || p.GetType() != "webhook" ||
		p.GetState() != registryv1.PairingState_PAIRING_STATE_APPROVED || p.GetOwner() || p.GetBy() != "owner" || p.GetMessages() != 4 {
		t.Errorf("approved %v, %v", p, err)
	}
	counted("approved 1")
	again, err := w.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: first.GetCode(), Decision: pairApprove})
	if err != nil || !again.GetAlready() || again.GetPairing().GetPeerId() != "bob" {
		t.Errorf("a code that was approved: %v, %v", again, err)
	}
	for _, d := range []registryv1.PairingDecision{pairDeny, pairBlock, pairRevoke} {
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: first.GetCode(), Decision: d}); !fault.Is(err, fault.PairingNotFound) {
			t.Errorf("%v of a code that was approved: %v", d, err)
		}
	}
	if m := accept(t, w, inbound("2", "bob", "hello")); m.GetOutcome() != accepted {
		t.Errorf("an approved person: %v", m)
	}
	group := &registryv1.InboundMessage{Key: "g", Kind: "group", SessionId: "g1", PeerId: "bob", Text: canary}
	for _, c := range []struct {
		decision registryv1.PairingDecision
		dm       registryv1.AcceptOutcome
		notify   bool
		group    registryv1.AcceptOutcome
	}{
		{pairBlock, refused, false, refused},
		{pairRevoke, paired, true, accepted},
		{pairDeny, paired, true, duplicate},
		{pairApprove, accepted, false, duplicate},
	} {
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "bob", Decision: c.decision}); err != nil {
			t.Fatalf("%v: %v", c.decision, err)
		}
		if m := accept(t, w, inbound(c.decision.String(), "bob", "hello")); m.GetOutcome() != c.dm || m.GetNotify() != c.notify {
			t.Errorf("after %v: %v", c.decision, m)
		}
		if group.Text = "hello"; c.decision == pairBlock {
			group.Text = canary
		}
		if m := accept(t, w, group); m.GetOutcome() != c.group {
			t.Errorf("in a group after %v: %v", c.decision, m)
		}
	}
	// A message that was stored is a repeat, whatever its author may do now.
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "bob", Decision: pairBlock}); err != nil {
		t.Fatal(err)
	}
	if m := accept(t, w, inbound("2", "bob", "hello")); m.GetOutcome() != duplicate {
		t.Errorf("a repeat of a person who was blocked since: %v", m)
	}
	// I22: no text of a person who may not write is in any file.
	for _, e := range inboxOf(t, w, "main") {
		if strings.Contains(e.GetContent(), canary) {
			t.Errorf("stored: %s", e.GetContent())
		}
	}
	searchFiles(t, o.Home, canary)
}

// searchFiles fails where a file below dir has a text.
func searchFiles(t *testing.T, dir, text string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), text) {
			t.Errorf("%s has %q", path, text)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// S2-103: at most three people wait for an answer; nothing is stored of others. A program gets no code, nor does a person whose id is
// longer than any platform has.
func TestStrangers(t *testing.T) { backendtest.Each(t, testStrangers) }

func testStrangers(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, private)
	bot := inbound("bot", "bot", "hello")
	bot.Bot = true
	for _, m := range []*registryv1.InboundMessage{bot, inbound("long", strings.Repeat("x", 600), "hello")} {
		if got := accept(t, w, m); got.GetOutcome() != refused || got.GetReason() != fault.PeerRefused || got.GetNotify() {
			t.Errorf("%.20q: %v", m.GetPeerId(), got)
		}
	}
	count := map[registryv1.AcceptOutcome]int{}
	for i := range 100 {
		m := accept(t, w, inbound(fmt.Sprint("m", i), fmt.Sprint("p", i), "hello"))
		if count[m.GetOutcome()]++; m.GetNotify() != (m.GetOutcome() == paired) {
			t.Errorf("stranger %d: %v", i, m)
		}
	}
	if count[paired] != 3 || count[refused] != 97 || len(pairings(t, w)) != 3 || len(inboxOf(t, w, "main")) != 0 {
		t.Errorf("outcomes %v, pairings %q", count, pairings(t, w))
	}
	// At most 20 codes in an hour, whatever is decided.
	codes := 3
	for i := range 50 {
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: fmt.Sprint("p", i), Decision: pairDeny}); err != nil && !fault.Is(err, fault.PairingNotFound) {
			t.Fatal(err)
		}
		if accept(t, w, inbound(fmt.Sprint("later", i), fmt.Sprint("p", i+3), "hello")).GetOutcome() == paired {
			codes++
		}
	}
	if codes != 20 {
		t.Errorf("%d codes, want 20", codes)
	}
	if m := accept(t, w, inbound("ann", "ann", "hello")); m.GetOutcome() != accepted {
		t.Errorf("a person of the settings: %v", m)
	}
}

// Owners are those of the settings and each person who was approved as one, at every account of the type. In a chat
// an owner approves people, but makes no owners, and decides nothing about one; who tries codes is not listened to.
func TestOwners(t *testing.T) { backendtest.Each(t, testOwners) }

func testOwners(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, private)
	gateway := w.As(rpc.Identity{Kind: rpc.Service, Name: "gateway"})
	bob := accept(t, w, inbound("1", "bob", "hello"))
	for what, req := range map[string]*registryv1.ResolvePairingRequest{
		"without by":         {Code: bob.GetCode(), Decision: pairApprove},
		"by a stranger":      {Code: bob.GetCode(), Decision: pairApprove, By: "webhook:bob"},
		"by another type":    {Code: bob.GetCode(), Decision: pairApprove, By: "slack:boss"},
		"an owner in a chat": {Code: bob.GetCode(), Decision: pairApprove, By: "webhook:boss", Owner: true},
	} {
		if _, err := resolve(t, gateway, req); !fault.Is(err, fault.PermissionDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: bob.GetCode(), Decision: pairApprove, Owner: true}); err != nil || !p.GetOwner() {
		t.Fatalf("bob: %v, %v", p, err)
	}
	two, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "two", Messages: []*registryv1.InboundMessage{inbound("2", "bob", "hello")}})
	if m := backendtest.Must(t, two, err).GetResults()[0]; m.GetOutcome() != accepted {
		t.Errorf("an owner at another account: %v", m)
	}
	carl := accept(t, w, inbound("3", "carl", "hello"))
	if p, err := resolve(t, gateway, &registryv1.ResolvePairingRequest{Code: carl.GetCode(), Decision: pairApprove, By: "webhook:bob"}); err != nil || p.GetBy() != "webhook:bob" {
		t.Errorf("by bob: %v, %v", p, err)
	}
	if _, err := resolve(t, gateway, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "bob", Decision: pairRevoke, By: "webhook:boss"}); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("about an owner: %v", err)
	}
	// The answer of a decision was lost: it is given again, is no wrong code, and changes nothing.
	for range 6 {
		r, err := gateway.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: carl.GetCode(), Decision: pairApprove, By: "webhook:boss"})
		if err != nil || !r.GetAlready() || r.GetPairing().GetBy() != "webhook:bob" {
			t.Errorf("a code that was approved: %v, %v", r, err)
		}
	}
	eve := accept(t, w, inbound("4", "eve", "hello"))
	for i := range 5 {
		if _, err := resolve(t, gateway, &registryv1.ResolvePairingRequest{Code: fmt.Sprintf("AAAAAAA%d", i), Decision: pairApprove, By: "webhook:bob"}); !fault.Is(err, fault.PairingNotFound) {
			t.Errorf("wrong code %d: %v", i, err)
		}
	}
	for by, want := range map[string]string{"webhook:bob": fault.PairingNotFound, "webhook:boss": ""} {
		if _, err := resolve(t, gateway, &registryv1.ResolvePairingRequest{Code: eve.GetCode(), Decision: pairApprove, By: by}); (err != nil || want != "") && !fault.Is(err, want) {
			t.Errorf("the code of eve by %s: %v, want %q", by, err, want)
		}
	}
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "bob", Decision: pairDeny}); err != nil {
		t.Fatal(err)
	}
	if _, err := resolve(t, gateway, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "eve", Decision: pairDeny, By: "webhook:bob"}); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("by one who is no owner any more: %v", err)
	}
}

// A person who is approved is to be notified, once: a gateway that watches gets it, also after a restart of the registry,
// until it reports the notice; the approval waits for that as long as it says. Programs post to a webhook: no one can be
// notified over it.
func TestNoticeOfApproval(t *testing.T) { backendtest.Each(t, testNoticeOfApproval) }

func testNoticeOfApproval(t *testing.T, o backendtest.Options) {
	const (
		waiting = registryv1.PairingNotice_PAIRING_NOTICE_WAITING
		sent    = registryv1.PairingNotice_PAIRING_NOTICE_SENT
		failed  = registryv1.PairingNotice_PAIRING_NOTICE_FAILED
	)
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "channels:\n  wh: {type: webhook}\n  tg: {type: telegram, token: 'env:TG'}\n")
	request := func(account, peer string) string {
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: account, Messages: []*registryv1.InboundMessage{inbound(account+peer, peer, "hello")}})
		return backendtest.Must(t, r, err).GetResults()[0].GetCode()
	}
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: request("wh", "ann"), Decision: pairApprove, Wait: backendtest.DurationOf(time.Minute)}); err != nil || p.GetNotice() != 0 {
		t.Errorf("over a webhook: %v, %v", p, err)
	}
	code := request("tg", "bob")
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove, Wait: backendtest.DurationOf(time.Millisecond)}); err != nil || p.GetNotice() != waiting {
		t.Errorf("while no gateway receives: %v, %v", p, err)
	}
	w.Stop()
	w = o.Start(t, registry.Config{})
	gateway := w.As(rpc.Identity{Kind: rpc.Service, Name: "gateway"})
	watch, err := gateway.Channels.WatchPairings(t.Context(), &registryv1.WatchPairingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := gateway.Channels.WatchPairings(t.Context(), &registryv1.WatchPairingsRequest{}) // of a gateway that stands by
	if err != nil {
		t.Fatal(err)
	}
	watched := func(peer string, notice registryv1.PairingNotice) (p *registryv1.Pairing) {
		t.Helper()
		for i, w := range []interface {
			Recv() (*registryv1.WatchPairingsResponse, error)
		}{watch, other} {
			m, err := w.Recv()
			if p = m.GetPairing(); err != nil || p.GetAccount() != "tg" || p.GetPeerId() != peer || p.GetNotice() != notice {
				t.Fatalf("watcher %d got %v %v, want %s with the notice %v", i, m, err, peer, notice)
			}
		}
		return p
	}
	send := func(p *registryv1.Pairing, ok bool) {
		t.Helper()
		r, err := gateway.Channels.ReportNotice(t.Context(), &registryv1.ReportNoticeRequest{Account: "tg", PeerId: p.GetPeerId(), Sent: ok, At: p.GetAt()})
		backendtest.Must(t, r, err)
	}
	report := func(want string, ok bool) {
		t.Helper()
		p := watched(want, waiting)
		send(p, ok)
		watched(want, 0)
		send(p, !ok) // changes nothing
	}
	report("bob", true)
	if r, err := w.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove}); err != nil || !r.GetAlready() || r.GetPairing().GetNotice() != sent {
		t.Errorf("approved again: %v, %v", r, err)
	}
	for peer, ok := range map[string]bool{"carl": false, "dora": true} {
		code, want := request("tg", peer), map[bool]registryv1.PairingNotice{true: sent, false: failed}[ok]
		var g sync.WaitGroup
		g.Go(func() {
			p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove, Wait: backendtest.DurationOf(time.Minute)})
			if err != nil || p.GetNotice() != want {
				t.Errorf("%s, who waits for the notice: %v, %v; want %v", peer, p, err, want)
			}
		})
		report(peer, ok)
		g.Wait()
	}
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "tg", PeerId: "bob", Decision: pairBlock}); err != nil || p.GetNotice() != 0 {
		t.Errorf("blocked: %v, %v", p, err)
	}
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "tg", PeerId: "bob", Decision: pairApprove}); err != nil || p.GetNotice() != waiting {
		t.Errorf("approved once more: %v, %v", p, err)
	}
	// A notice that waits is withdrawn with the approval, and that of the next one is another.
	first := watched("bob", waiting)
	for _, d := range []registryv1.PairingDecision{pairBlock, pairRevoke} {
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "tg", PeerId: "bob", Decision: d}); err != nil {
			t.Fatal(err)
		}
		if d == pairBlock {
			watched("bob", 0)
		}
	}
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "tg", Messages: []*registryv1.InboundMessage{inbound("again", "bob", "hello")}})
	code = backendtest.Must(t, r, err).GetResults()[0].GetCode()
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove}); err != nil || p.GetNotice() != waiting {
		t.Errorf("approved after that: %v, %v", p, err)
	}
	second := watched("bob", waiting)
	send(first, true)
	// Made an owner while the notice waits: it is the same notice, which no watcher gets again.
	if p, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove, Owner: true}); err != nil || p.GetNotice() != waiting || !p.GetOwner() || !p.GetAt().AsTime().Equal(second.GetAt().AsTime()) {
		t.Errorf("made an owner: %v, %v; want the notice and the time of %v", p, err, second)
	}
	send(second, true)
	watched("bob", 0)
	if r, err := w.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove}); err != nil || !r.GetAlready() || r.GetPairing().GetNotice() != sent {
		t.Errorf("approved again: %v, %v", r, err)
	}
}

// Of approvals of one code at the same time, at the registries of a home, one counts: the others change nothing and say
// so, and the person has one notice, for the first.
func TestApprovalsAtOnce(t *testing.T) { backendtest.Each(t, testApprovalsAtOnce) }

func testApprovalsAtOnce(t *testing.T, o backendtest.Options) {
	worlds := []*backendtest.World{o.Start(t, registry.Config{})}
	w := worlds[0]
	if o.DSN != "" { // a home has one registry
		other := o
		other.Home = filepath.Join(t.TempDir(), "other")
		worlds = append(worlds, other.Start(t, registry.Config{}))
	}
	w.Create("main")
	setHome(t, o, w, "channels:\n  tg: {type: telegram, token: 'env:TG'}\nowners: ['telegram:ann', 'telegram:eve', 'telegram:joe', 'telegram:zoe']\n")
	watch, err := w.Channels.WatchPairings(t.Context(), &registryv1.WatchPairingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		peer := fmt.Sprint("p", n)
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "tg", Messages: []*registryv1.InboundMessage{inbound(peer, peer, "hello")}})
		code := backendtest.Must(t, r, err).GetResults()[0].GetCode()
		var g sync.WaitGroup
		var mu sync.Mutex
		var first []*registryv1.Pairing
		var all []*registryv1.ResolvePairingResponse
		for i, by := range []string{"ann", "eve", "joe", "zoe"} {
			g.Go(func() {
				at := worlds[i%len(worlds)]
				r, err := at.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove, By: "telegram:" + by})
				mu.Lock()
				defer mu.Unlock()
				if all = append(all, r); err != nil {
					t.Errorf("%s: %v", by, err)
				} else if !r.GetAlready() {
					first = append(first, r.GetPairing())
				}
			})
		}
		g.Wait()
		if len(first) != 1 {
			t.Fatalf("%d approvals of %s count: %v", len(first), peer, all)
		}
		for _, r := range all {
			if r.GetPairing().GetBy() != first[0].GetBy() {
				t.Errorf("%v, want it by %s", r, first[0].GetBy())
			}
		}
		m, err := watch.Recv()
		if p := m.GetPairing(); err != nil || p.GetPeerId() != peer || p.GetBy() != first[0].GetBy() {
			t.Fatalf("watched %v %v, want %s by %s", m, err, peer, first[0].GetBy())
		}
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "tg", PeerId: peer, Decision: pairBlock}); err != nil {
			t.Fatal(err)
		}
		if m, err := watch.Recv(); err != nil || m.GetPairing().GetPeerId() != peer || m.GetPairing().GetNotice() != 0 {
			t.Fatalf("watched %v %v, want that the notice of %s does not wait", m, err, peer)
		}
	}
}

// S4-56: a turn has the owners of the settings and those who were approved as one, each once and in a fixed order; one
// whose pairing is revoked is none of them.
func TestOwnersOfATurn(t *testing.T) { backendtest.Each(t, testOwnersOfATurn) }

func testOwnersOfATurn(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "owners: ['webhook:zoe', 'webhook:bob', 'slack:U1']\nchannels:\n  wh: {type: webhook, dm: pairing, allow_from: [ann]}\n  two: {type: webhook}\n")
	n := 0
	check := func(want ...string) {
		t.Helper()
		n++
		m := accept(t, w, inbound(fmt.Sprint("turn", n), "ann", "x"))
		if got := claimed(t, w, "main")[0].GetConfig().GetOwners(); !slices.Equal(got, want) {
			t.Errorf("the turn has %q, want %q", got, want)
		}
		r, err := w.Turns.GetTurnConfig(t.Context(), &registryv1.GetTurnConfigRequest{AgentId: "main", ThreadId: m.GetThreadId()})
		if got := backendtest.Must(t, r, err).GetConfig().GetOwners(); !slices.Equal(got, want) {
			t.Errorf("the conversation has %q, want %q", got, want)
		}
	}
	check("slack:U1", "webhook:bob", "webhook:zoe")
	for i, peer := range []string{"carl", "dora"} {
		code := accept(t, w, inbound(peer, peer, "hello")).GetCode()
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: pairApprove, Owner: i == 0}); err != nil {
			t.Fatal(err)
		}
	}
	check("slack:U1", "webhook:bob", "webhook:carl", "webhook:zoe")
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "carl", Decision: pairRevoke}); err != nil {
		t.Fatal(err)
	}
	check("slack:U1", "webhook:bob", "webhook:zoe")
}

// A second person of an agent that has one conversation for all is refused, unless the owner accepts it.
func TestPairingShared(t *testing.T) { backendtest.Each(t, testPairingShared) }

func testPairingShared(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "session: {dm_scope: main}\nchannels:\n  wh: {type: webhook}\n")
	bob, carl := accept(t, w, inbound("1", "bob", "hello")), accept(t, w, inbound("2", "carl", "hello"))
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: bob.GetCode(), Decision: pairApprove}); err != nil {
		t.Fatalf("the first person: %v", err)
	}
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: carl.GetCode(), Decision: pairApprove}); !fault.Is(err, fault.PairingShared) || !strings.Contains(err.Error(), "webhook:bob") {
		t.Errorf("the second person: %v", err)
	}
	if m := accept(t, w, inbound("3", "carl", "hello")); m.GetOutcome() != paired {
		t.Errorf("after a refused approval: %v", m)
	}
	if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: carl.GetCode(), Decision: pairApprove, ShareMain: true}); err != nil {
		t.Errorf("accepted by the owner: %v", err)
	}
	if m := accept(t, w, inbound("4", "carl", "hello")); m.GetOutcome() != accepted || m.GetSessionKey() != "agent:main:main" {
		t.Errorf("the second person then: %v", m)
	}
}
