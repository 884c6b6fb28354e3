package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const key = "a-key-of-signatures"

// site is a world with a gateway, and the agent admin.
type site struct {
	*world.World
	at string // where the gateway listens
}

// open starts a world with the accounts; with a home it starts again there.
func open(t *testing.T, o world.Options, accounts string) *site {
	t.Helper()
	first := o.Home == ""
	if first {
		o.Home = filepath.Join(t.TempDir(), "home")
	}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	if accounts != "" && o.DSN == "" {
		if err := os.WriteFile(filepath.Join(o.Home, "theclaw.yaml"), []byte("channels:\n"+accounts), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o.HTTP == "" {
		o.HTTP = "127.0.0.1:0"
	}
	o.Env = map[string]string{"env:KEY": key, "env:EMPTY": "", "env:TG": telegramtest.DefaultToken, "env:OLD": "4242:REVOKED"}
	o.Env["env:SLACK_BOT"], o.Env["env:SLACK_APP"], o.Env["env:DC"] = slacktest.BotToken, slacktest.AppToken, discordToken
	for n := range 63 {
		o.Env[fmt.Sprintf("env:B%d", n)] = botToken(n)
	}
	h := &site{World: world.Start(t, o)}
	info, err := h.World.Gateway.GetGatewayInfo(t.Context(), &gatewayv1.GetGatewayInfoRequest{})
	if err != nil || info.GetHttpProblem() != "" {
		t.Fatal(info, err)
	}
	h.at = "http://" + info.GetHttp()
	if first {
		h.Create(t, "admin", "")
	}
	if accounts != "" && o.DSN != "" {
		_, err := h.Homes.SetHomeConfig(t.Context(), &registryv1.SetHomeConfigRequest{Text: "channels:\n" + accounts})
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// state waits until an account is in a state.
func (h *site) state(t *testing.T, name string, want gatewayv1.ChannelState) *gatewayv1.Channel {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		r, err := h.World.Gateway.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.GetChannels(), func(c *gatewayv1.Channel) bool { return c.GetName() == name })
		if i >= 0 && r.GetChannels()[i].GetState() == want {
			return r.GetChannels()[i]
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not %v: %v", name, want, r)
		}
	}
}

// answer is the answer of a post.
type answer struct {
	Status    int
	Retry     string
	Accepted  bool
	Duplicate bool
	Agent     string
	Session   string
	RunID     string `json:"run_id"`
	Reply     string
	Fate      string
	Reason    string
	Error     string
	Missing   []string
	raw       string
}

// post posts a body; headers are pairs.
func (h *site) post(t *testing.T, to string, body []byte, headers ...string) (a answer) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.at+to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal(raw, &a) != nil {
		a.Error = string(raw)
	}
	a.Status, a.Retry, a.raw = got.StatusCode, got.Header.Get("Retry-After"), string(raw)
	return a
}

func signed(body []byte) []string {
	return []string{webhook.SignatureHeader, webhook.Sign(key, time.Now(), body)}
}

func message(id, from, text string) []byte {
	b, _ := json.Marshal(map[string]any{"id": id, "from": map[string]string{"id": from, "name": "Ann"}, "text": text})
	return b
}

// stored are the messages in the inbox.
func (h *site) stored(t *testing.T) int64 {
	t.Helper()
	r, err := h.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "admin", PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(r.GetTurns()))
}

// each runs a test on a home and on a database that registries share.
func each(t *testing.T, test func(t *testing.T, o world.Options)) {
	t.Run("sqlite", func(t *testing.T) { test(t, world.Options{}) })
	t.Run("postgres", func(t *testing.T) { test(t, world.Options{DSN: pgtest.Shared(t).Database(t)}) })
}

// A message that is posted gets its reply; a repeat of it is answered with what became of the
// first, also after a restart of all services, and nothing is stored (S2-16, example 1 of the
// gateway).
func TestPost(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		h := open(t, o, "  shop: {type: webhook, dm: open, secret: \"env:KEY\"}\n")
		h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		body := message("o-1", "c7", "say: hello")
		first := h.post(t, "/hooks/shop?wait=30s", body, signed(body)...)
		if first.Status != 200 || !first.Accepted || first.Duplicate || first.Agent != "admin" || first.Reply != "hello" || first.Fate != "replied" ||
			first.Session != "agent:admin:webhook:shop:dm:c7" {
			t.Fatalf("%+v", first)
		}
		repeat := h.post(t, "/hooks/shop?wait=30s", body, signed(body)...)
		if repeat.Status != 200 || !repeat.Duplicate || repeat.RunID != first.RunID || repeat.Reply != "hello" {
			t.Errorf("a repeat: %+v", repeat)
		}
		c := h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		if c.GetIn() != 1 || !strings.HasSuffix(c.GetAddress(), "/hooks/shop") {
			t.Errorf("%v", c)
		}
		// The same id in another conversation is another message.
		other := message("o-1", "c8", "say: other")
		if got := h.post(t, "/hooks/shop?wait=30s", other, signed(other)...); got.Duplicate || got.Reply != "other" {
			t.Errorf("%+v", got)
		}
		// It does not wait unless asked to.
		late := message("o-2", "c7", "say: later")
		if got := h.post(t, "/hooks/shop", late, signed(late)...); got.Status != 202 || !got.Accepted || got.Reply != "" {
			t.Errorf("%+v", got)
		}
		if o.DSN != "" {
			return // a world over a database makes its homes new
		}
		h.Stop()
		h = open(t, world.Options{Home: h.Home}, "")
		h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		if got := h.post(t, "/hooks/shop?wait=30s", body, signed(body)...); !got.Duplicate || got.RunID != first.RunID || got.Reply != "hello" {
			t.Errorf("after a restart: %+v", got)
		}
		if n := h.stored(t); n != 3 {
			t.Errorf("%d messages are stored, not 3", n)
		}
	})
}

// A reply is posted to the address of the account, signed with its secret; an account without an
// address sends nothing.
func TestReplyIsPosted(t *testing.T) {
	sink := world.NewSink(t)
	h := open(t, world.Options{}, "  shop: {type: webhook, dm: open, secret: \"env:KEY\", allow_private: true, url: \""+sink.URL+"\"}\n"+
		"  mute: {type: webhook, dm: open, secret: \"env:KEY\"}\n")
	h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	for _, name := range []string{"mute", "shop"} {
		body := message("1", "c7", "say: by "+name)
		got := h.post(t, "/hooks/"+name+"?wait=30s", body, signed(body)...)
		if got.Reply != "by "+name {
			t.Fatalf("%+v", got)
		}
		h.Delivered(t, "admin", h.stored(t))
	}
	list := sink.Arrivals("")
	if len(list) != 1 || list[0].Text != "by shop" {
		t.Fatalf("%+v", list)
	}
	if err := webhook.Verify(key, list[0].Signature, list[0].Body, time.Now()); err != nil {
		t.Errorf("%v: %q", err, list[0].Signature)
	}
}

// What is not signed as the account demands, or is no message, is refused with a status that says
// why, and nothing of it is stored. An account that is unknown, disabled or of another type looks
// alike.
func TestRefusals(t *testing.T) {
	metrics, refused := prometheus.NewRegistry(), map[string]float64{}
	h := open(t, world.Options{GatewayMetrics: obs.NewGatewayMetrics(metrics)}, `  shop: {type: webhook, dm: open, secret: "env:KEY"}
  free: {type: webhook, dm: open}
  listed: {type: webhook, dm: allowlist, allow_from: [c7]}
  off: {type: webhook, dm: open, enabled: false}
  gone: {type: webhook, dm: open, secret: "env:NONE"}
  empty: {type: webhook, dm: open, secret: "env:EMPTY"}
  tele: {type: telegram, enabled: false}
  private: {type: webhook}
`)
	h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	const secretText = "a text that no file may have"
	good := message("1", "c7", secretText)
	sign := func(age time.Duration, secret string, body []byte) string {
		return webhook.Sign(secret, time.Now().Add(-age), body)
	}
	deep := []byte(`{"id":"1","from":{"id":"c7"},"text":"x","thread":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`)
	unknown := h.post(t, "/hooks/missing", good)
	for _, c := range []struct {
		name, to string
		body     []byte
		headers  []string
		status   int
		reason   string
	}{
		{"no signature", "/hooks/shop", good, nil, 401, fault.ChannelSignature},
		{"another key", "/hooks/shop", good, []string{webhook.SignatureHeader, sign(0, "another", good)}, 401, fault.ChannelSignature},
		{"another body", "/hooks/shop", good, []string{webhook.SignatureHeader, sign(0, key, message("1", "c7", "x"))}, 401, fault.ChannelSignature},
		{"an old one", "/hooks/shop", good, []string{webhook.SignatureHeader, sign(6*time.Minute, key, good)}, 401, fault.ChannelSignature},
		{"one of the future", "/hooks/shop", good, []string{webhook.SignatureHeader, sign(-6*time.Minute, key, good)}, 401, fault.ChannelSignature},
		{"no form", "/hooks/shop", good, []string{webhook.SignatureHeader, "t=1"}, 401, fault.ChannelSignature},
		{"through a proxy, without a secret", "/hooks/free", good, []string{"X-Forwarded-For", "203.0.113.9"}, 401, fault.ChannelSignature},
		{"another host", "/hooks/free", good, []string{"Host", "rebound.example"}, 403, fault.InvalidArgument},
		{"unknown", "/hooks/missing", good, nil, 404, fault.ChannelNotFound},
		{"disabled", "/hooks/off", good, nil, 404, fault.ChannelNotFound},
		{"another type", "/hooks/tele", good, nil, 404, fault.ChannelNotFound},
		{"a secret that cannot be read", "/hooks/gone", good, nil, 503, fault.ServiceUnavailable},
		{"an empty secret", "/hooks/empty", good, nil, 503, fault.ServiceUnavailable},
		{"a page of another origin", "/hooks/free", good, []string{"Origin", "https://evil.example"}, 403, fault.InvalidArgument},
		{"the same by its fetch metadata", "/hooks/free", good, []string{"Sec-Fetch-Site", "cross-site"}, 403, fault.InvalidArgument},
		{"too long", "/hooks/free", bytes.Repeat([]byte(" "), 4<<20), nil, 413, fault.InvalidArgument},
		{"not JSON", "/hooks/free", []byte(`{"id":`), nil, 400, fault.InvalidArgument},
		{"a list", "/hooks/free", []byte(`[]`), nil, 400, fault.InvalidArgument},
		{"nothing", "/hooks/free", nil, nil, 400, fault.InvalidArgument},
		{"not UTF-8", "/hooks/free", []byte("{\"id\":\"1\",\"from\":{\"id\":\"c\"},\"text\":\"\xff\"}"), nil, 400, fault.InvalidArgument},
		{"deep", "/hooks/free", deep, nil, 400, fault.InvalidArgument},
		{"no id", "/hooks/free", message("", "c7", "x"), nil, 400, fault.InvalidArgument},
		{"a long id", "/hooks/free", message(strings.Repeat("i", 257), "c7", "x"), nil, 400, fault.InvalidArgument},
		{"no sender", "/hooks/free", message("1", "", "x"), nil, 400, fault.InvalidArgument},
		{"no text", "/hooks/free", message("1", "c7", ""), nil, 400, fault.InvalidArgument},
		{"an unknown kind", "/hooks/free", []byte(`{"id":"1","from":{"id":"c"},"text":"x","conversation":{"kind":"channel"}}`), nil, 400, fault.InvalidArgument},
		{"a wrong type", "/hooks/free", []byte(`{"id":1,"from":{"id":"c"},"text":"x"}`), nil, 400, fault.InvalidArgument},
		{"a bad wait", "/hooks/free?wait=2h", good, nil, 400, fault.InvalidArgument},
		{"a stranger", "/hooks/listed", message("1", "c8", secretText), nil, 200, fault.PeerRefused},
		{"a person who is to be approved", "/hooks/private", message("1", "c8", secretText), nil, 200, fault.PeerRefused},
		{"a group that is not listed", "/hooks/free", []byte(`{"id":"1","from":{"id":"c"},"text":"` + secretText + `","conversation":{"id":"g","kind":"group"}}`), nil, 200, fault.PeerRefused},
	} {
		got := h.post(t, c.to, c.body, c.headers...)
		if got.Status != c.status || got.Reason != c.reason || got.Accepted {
			t.Errorf("%s: %+v", c.name, got)
		}
		switch c.status {
		case 403:
			refused[fault.PermissionDenied]++
		case 200, 400, 401, 413:
			refused[c.reason]++
		}
		if c.status == 404 && got.raw != unknown.raw {
			t.Errorf("%s: %s differs from that of an unknown name", c.name, got.raw)
		}
		if c.status == 503 && (got.Retry == "" || strings.Contains(got.raw, "env:")) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if n := h.stored(t); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	if got := values(t, metrics, "theclaw_gateway_refused_total"); !maps.Equal(got, refused) {
		t.Errorf("counted %v, want %v", got, refused)
	}
	if got := values(t, metrics, "theclaw_gateway_inflight"); got["free"] != 0 || len(got) == 0 {
		t.Errorf("on their way: %v", got)
	}
	// I22: no text of a refused message is anywhere.
	err := fs.WalkDir(os.DirFS(h.Home), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(h.Home, name))
		if bytes.Contains(b, []byte(secretText)) {
			t.Errorf("%s holds the text of a refused message", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	get, err := http.Get(h.at + "/hooks/free")
	if err != nil {
		t.Fatal(err)
	}
	if get.Body.Close(); get.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", get.StatusCode)
	}
}

// values are those of a metric with one label.
func values(t *testing.T, r prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// Each account has a state of its own, which follows the settings while the services run; what
// is broken in a file changes none.
func TestStates(t *testing.T) {
	h := open(t, world.Options{}, "  one: {type: webhook, dm: open, secret: \"env:NONE\"}\n  two: {type: matrix}\n  three: {type: webhook, enabled: false}\n")
	if c := h.state(t, "one", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "env:NONE") {
		t.Errorf("%v", c)
	}
	h.state(t, "two", gatewayv1.ChannelState_CHANNEL_STATE_ERROR)
	h.state(t, "three", gatewayv1.ChannelState_CHANNEL_STATE_OFF)
	set := func(value string, path ...string) error {
		_, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: path, Value: value})
		return err
	}
	if err := set(`"env:KEY"`, "channels", "one", "secret"); err != nil {
		t.Fatal(err)
	}
	h.state(t, "one", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	if err := set(`{type: webhook, dm: open}`, "channels", "four"); err != nil {
		t.Fatal(err)
	}
	h.state(t, "four", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	// A file that is broken, as by an editor, leaves what was in force.
	file := filepath.Join(h.Home, "theclaw.yaml")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("channels: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := h.post(t, "/hooks/four", message("1", "c", "say: x")); got.Status != 202 {
		t.Errorf("with a broken file: %+v", got)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{type: webhook, url: "ftp://x"}`, `{type: webhook, secret: "plain"}`, `{type: webhook, token: "env:KEY"}`} {
		if err := set(bad, "channels", "five"); !fault.Is(err, fault.ConfigInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := set("", "channels", "one"); err != nil {
		t.Fatal(err)
	}
	body := message("1", "c", "say: x")
	for end := time.Now().Add(20 * time.Second); h.post(t, "/hooks/one", body, signed(body)...).Status != 404; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an account that was removed takes messages")
		}
	}
	if _, err := h.World.Gateway.RestartChannel(t.Context(), &gatewayv1.RestartChannelRequest{Name: "one"}); fault.From(err).Code != codes.NotFound {
		t.Errorf("%v", err)
	}
}

// An address that is in use is reported, and stops nothing.
func TestAddressInUse(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := world.Start(t, world.Options{HTTP: l.Addr().String()})
	w.Create(t, "admin", "")
	info, err := w.Gateway.GetGatewayInfo(t.Context(), &gatewayv1.GetGatewayInfoRequest{})
	if err != nil || info.GetHttp() != "" || !strings.Contains(info.GetHttpProblem(), l.Addr().String()) {
		t.Errorf("%v %v", info, err)
	}
	if turn := w.Say(t, "admin", world.Peer("bob"), "say: works"); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%v", turn)
	}
}

// The same message posted by many at once is stored once, and all get its run.
func TestRepeatsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		h := open(t, o, "  free: {type: webhook, dm: open, rate: 0}\n")
		h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		const messages, posts = 20, 8
		runs := make([]map[string]int, messages)
		var mu sync.Mutex
		var g sync.WaitGroup
		for n := range messages {
			runs[n] = map[string]int{}
			for range posts {
				g.Go(func() {
					got := h.post(t, "/hooks/free", message(fmt.Sprint(n), "c7", fmt.Sprint("say: ", n)))
					mu.Lock()
					defer mu.Unlock()
					runs[n][got.RunID]++
				})
			}
		}
		g.Wait()
		for n, by := range runs {
			if len(by) != 1 || by[""] > 0 {
				t.Errorf("message %d: %v", n, by)
			}
		}
		if n := h.stored(t); n != messages {
			t.Errorf("%d messages are stored, not %d", n, messages)
		}
	})
}

// A message to an agent that is stopped is accepted and waits; a repeat after its start gets the
// reply.
func TestStoppedAgent(t *testing.T) {
	h := open(t, world.Options{}, "  free: {type: webhook, dm: open}\n")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	if _, err := h.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "admin"}); err != nil {
		t.Fatal(err)
	}
	body := message("1", "c7", "say: hello")
	if got := h.post(t, "/hooks/free?wait=10ms", body); got.Status != 202 || !got.Accepted || got.Reply != "" {
		t.Errorf("%+v", got)
	}
	if _, err := h.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "admin"}); err != nil {
		t.Fatal(err)
	}
	if got := h.post(t, "/hooks/free?wait=30s", body); got.Status != 200 || !got.Duplicate || got.Reply != "hello" {
		t.Errorf("%+v", got)
	}
}
