package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Label cardinality. A label value is either a word of a closed set written in
// our code (outcome, kind, state, durability, direction, class), a name from the
// owner's configuration behind a [labelSet] (provider, model, channel), or
// agent_id on the lag gauges, which have a series only while the lag is not
// zero: 10,000 idle agents cost nothing. Event ids, peers, threads, run ids and
// error texts are never labels; they belong in the log.

// maxNames bounds each configured label: the first 64 values are kept, later
// ones are counted as "other".
const maxNames = 64

// NewRegistry returns a metrics registry with the Go and process collectors.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// labelSet keeps a configured name from making unbounded series.
type labelSet struct {
	mu    sync.RWMutex
	names map[string]struct{}
}

func (s *labelSet) name(v string) string {
	if v == "" {
		return "none"
	}
	s.mu.RLock()
	_, ok := s.names[v]
	s.mu.RUnlock()
	if ok {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	if _, ok := s.names[v]; !ok && len(s.names) >= maxNames {
		return "other"
	}
	s.names[v] = struct{}{}
	return v
}

// maker creates the metrics of one service under its prefix.
type maker struct {
	promauto.Factory
	service string
}

// newMaker registers with r; a nil r makes metrics that nobody collects.
func newMaker(r prometheus.Registerer, service string) maker {
	return maker{promauto.With(r), service}
}

func (m maker) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return m.NewCounterVec(prometheus.CounterOpts{Namespace: "theclaw", Subsystem: m.service, Name: name, Help: help}, labels)
}

func (m maker) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.NewGaugeVec(prometheus.GaugeOpts{Namespace: "theclaw", Subsystem: m.service, Name: name, Help: help}, labels)
}

// histogram is native (exact where the scraper understands it) with a few
// classic buckets for those that do not.
func (m maker) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "theclaw", Subsystem: m.service, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

var (
	fast = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5}
	slow = []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	long = []float64{1, 5, 15, 60, 300, 900, 3600, 14400, 86400} // of people
)

// setOrDrop sets a per-agent gauge, and drops its series at zero.
func setOrDrop(g *prometheus.GaugeVec, agentID string, n int64) {
	if n == 0 {
		g.DeleteLabelValues(agentID)
		return
	}
	g.WithLabelValues(agentID).Set(float64(n))
}

// RegistryMetrics are the registry's.
type RegistryMetrics struct {
	lag *lags

	Leases          *prometheus.GaugeVec   // state: held, free, expired
	DispatchLatency prometheus.Observer    // seconds from a due mark to the grant
	Pushes          prometheus.Counter     // accepted push calls
	DedupHits       prometheus.Counter     // pushes and records answered from a dedupe key
	Commits         *prometheus.CounterVec // durability: full, lazy
	OpenDatabases   prometheus.Gauge       // handles in the LRU
	DiskFree        prometheus.Gauge       // bytes free where the home is

	approvals *prometheus.CounterVec
	questions *prometheus.CounterVec
	pins      *prometheus.GaugeVec
	pairings  *prometheus.GaugeVec
	bindings  prometheus.Gauge
}

// NewRegistryMetrics makes the registry's metrics in r; nil r: uncollected.
func NewRegistryMetrics(r prometheus.Registerer) *RegistryMetrics {
	m := newMaker(r, "registry")
	loose := newMaker(nil, "registry") // collected by what is made of them
	lag := &lags{
		inbox:    loose.gauge("inbox_lag_events", "Inbox events after the acknowledged one; no series means zero.", "agent_id"),
		acked:    loose.gauge("inbox_acked_id", "Inbox event up to which everything is done, of agents with a lag.", "agent_id"),
		outbound: loose.gauge("outbound_lag_events", "Conversations with replies neither delivered nor dead; no series means zero.", "agent_id"),
	}
	if r != nil {
		r.MustRegister(lag)
	}
	return &RegistryMetrics{
		lag:    lag,
		Leases: m.gauge("leases", "Leases by state.", "state"),
		DispatchLatency: m.histogram("dispatch_latency_seconds", "Time from an agent becoming due to its lease being granted.",
			fast).WithLabelValues(),
		Pushes:        m.counter("pushes_total", "Accepted push calls.").WithLabelValues(),
		DedupHits:     m.counter("dedup_hits_total", "Writes answered from a dedupe key instead of being repeated.").WithLabelValues(),
		Commits:       m.counter("store_commits_total", "Committed transactions by durability.", "durability"),
		OpenDatabases: m.gauge("store_open_databases", "Databases held open.").WithLabelValues(),
		DiskFree:      m.gauge("disk_free_bytes", "Bytes free on the disk of the home.").WithLabelValues(),
		approvals:     m.counter("approvals_total", "Approvals that wait no more, by kind and decision: once, always, deny, expired.", "kind", "decision"),
		pins:          m.gauge("pins", "Tools of MCP servers by state: new, approved, changed, denied, gone.", "state"),
		pairings:      m.gauge("pairings", "People who asked to write to accounts, by what was decided: pending, approved, denied, blocked.", "state"),
		bindings:      m.gauge("bindings", "Bindings in the settings of the home.").WithLabelValues(),
		questions:     m.counter("questions_total", "Questions that wait no more, by end: answered, expired, canceled.", "end"),
	}
}

// AddApproval counts an approval that waits no more; decision: once, always, deny, expired.
func (m *RegistryMetrics) AddApproval(kind, decision string) {
	m.approvals.WithLabelValues(kind, decision).Inc()
}

// AddQuestion counts a question that waits no more; end: answered, expired, canceled.
func (m *RegistryMetrics) AddQuestion(end string) { m.questions.WithLabelValues(end).Inc() }

// SetPins notes how many tools of MCP servers are in a state: new, approved, changed, denied, gone.
func (m *RegistryMetrics) SetPins(state string, n int) { m.pins.WithLabelValues(state).Set(float64(n)) }

// SetPairings notes about how many people something was decided, or is to be: pending, approved, denied, blocked.
func (m *RegistryMetrics) SetPairings(state string, n int) {
	m.pairings.WithLabelValues(state).Set(float64(n))
}

// SetBindings notes how many bindings the settings of the home have.
func (m *RegistryMetrics) SetBindings(n int) { m.bindings.Set(float64(n)) }

// RunnerMetrics are the runner's.
type RunnerMetrics struct {
	*HookMetrics

	names labelSet

	turn    *prometheus.HistogramVec
	step    *prometheus.HistogramVec
	tokens  *prometheus.CounterVec
	cost    *prometheus.CounterVec
	retries *prometheus.CounterVec
	command *prometheus.CounterVec
	sandbox *prometheus.GaugeVec
	mcp     *prometheus.GaugeVec
	restart *prometheus.CounterVec

	tools, layers labelSet
	calls         *prometheus.CounterVec
	toolTime      *prometheus.HistogramVec
	denied, cut   *prometheus.CounterVec
	waits         *prometheus.GaugeVec
	waitTime      *prometheus.HistogramVec
	processes     *prometheus.GaugeVec
	egressRefused prometheus.Counter
	parallel      prometheus.Gauge
	sandboxes     *prometheus.GaugeVec

	TurnsActive prometheus.Gauge // turns being worked on now
}

// NewRunnerMetrics makes the runner's metrics in r; nil r: uncollected.
func NewRunnerMetrics(r prometheus.Registerer) *RunnerMetrics {
	m := newMaker(r, "runner")
	return &RunnerMetrics{
		HookMetrics: NewHookMetrics(r, "runner"),

		turn:          m.histogram("turn_duration_seconds", "Time of a turn from claim to fate, by outcome.", slow, "outcome"),
		step:          m.histogram("step_duration_seconds", "Time of a model call or a tool, by kind.", slow, "kind"),
		tokens:        m.counter("tokens_total", "Model tokens by direction (input, output, cached, cache_write, reasoning).", "direction", "provider", "model"),
		cost:          m.counter("cost_total", "What model answers cost by the prices in providers.yaml; answers without a price are left out.", "provider", "model"),
		retries:       m.counter("model_retries_total", "Repeated model calls by error class.", "class"),
		command:       m.counter("commands_total", "Chat commands that were answered, by name.", "name"),
		sandbox:       m.gauge("sandbox_info", "Always 1; the label names the probed sandbox level.", "level"),
		mcp:           m.gauge("mcp_state", "MCP servers by state: starting, up, retrying, down, auth.", "server", "state"),
		restart:       m.counter("mcp_restarts_total", "Starts of MCP servers that had ended.", "server"),
		calls:         m.counter("tool_calls_total", "Calls of tools by tool, class and outcome: ok, error, denied, invalid, in_doubt.", "tool", "class", "outcome"),
		toolTime:      m.histogram("tool_seconds", "Time of a call by tool, waits for people included.", slow, "tool"),
		denied:        m.counter("tool_denied_total", "Calls of tools that a layer of the policy does not allow, by layer.", "layer"),
		cut:           m.counter("tool_truncated_total", "Results that were shortened for the model, by tool.", "tool"),
		waits:         m.gauge("waits", "Calls that wait for a person, by kind: question, approval.", "kind"),
		waitTime:      m.histogram("wait_seconds", "Time of a wait by kind and end: answered, refused, expired, interrupted.", long, "kind", "end"),
		processes:     m.gauge("processes", "Programs in the background by state: starting, running.", "state"),
		egressRefused: m.counter("egress_refused_total", "Connections of programs, also of MCP servers, to hosts that their settings do not name.").WithLabelValues(),
		parallel:      m.gauge("tool_parallel", "Calls of tools that run now.").WithLabelValues(),
		sandboxes:     m.gauge("sandboxes", "Sandboxes that outlive a command and that this runner has used, by driver and scope: session, agent, shared.", "driver", "scope"),
		TurnsActive:   m.gauge("turns_active", "Turns being worked on.").WithLabelValues(),
	}
}

// ObserveTurn records a finished turn; outcome: replied, silent, merged, aborted, dead, not_a_message.
func (m *RunnerMetrics) ObserveTurn(outcome string, d time.Duration) {
	m.turn.WithLabelValues(outcome).Observe(d.Seconds())
}

// AddCommand counts a chat command that was answered.
func (m *RunnerMetrics) AddCommand(name string) { m.command.WithLabelValues(m.names.name(name)).Inc() }

// ObserveStep records a step; kind: model, tool, transcript, compaction.
func (m *RunnerMetrics) ObserveStep(kind string, d time.Duration) {
	m.step.WithLabelValues(kind).Observe(d.Seconds())
}

// AddCall records a call of a tool; class: read, idempotent, effect; outcome: ok, error, denied, invalid, in_doubt.
func (m *RunnerMetrics) AddCall(tool, class, outcome string, d time.Duration) {
	tool = m.tools.name(tool)
	m.calls.WithLabelValues(tool, class, outcome).Inc()
	m.toolTime.WithLabelValues(tool).Observe(d.Seconds())
}

// CallBegins and CallEnds note that a call of a tool runs.
func (m *RunnerMetrics) CallBegins() { m.parallel.Inc() }

// CallEnds notes that it runs no more.
func (m *RunnerMetrics) CallEnds() { m.parallel.Dec() }

// AddSandbox notes that there are n more sandboxes; scope: session, agent, shared.
func (m *RunnerMetrics) AddSandbox(driver, scope string, n int) {
	m.sandboxes.WithLabelValues(driver, scope).Add(float64(n))
}

// AddDenied counts a call that a layer of the policy does not allow.
func (m *RunnerMetrics) AddDenied(layer string) {
	m.denied.WithLabelValues(m.layers.name(layer)).Inc()
}

// AddTruncated counts a result that was shortened for the model.
func (m *RunnerMetrics) AddTruncated(tool string) {
	m.cut.WithLabelValues(m.tools.name(tool)).Inc()
}

// WaitBegins notes that a call waits for a person; kind: question, approval.
func (m *RunnerMetrics) WaitBegins(kind string) { m.waits.WithLabelValues(kind).Inc() }

// WaitEnds notes that it waits no more; end: answered, refused, expired, interrupted.
func (m *RunnerMetrics) WaitEnds(kind, end string, d time.Duration) {
	m.waits.WithLabelValues(kind).Dec()
	m.waitTime.WithLabelValues(kind, end).Observe(d.Seconds())
}

// ProcessState notes that a program in the background has another state; empty: it is over, or was none.
func (m *RunnerMetrics) ProcessState(from, to string) {
	if from != "" {
		m.processes.WithLabelValues(from).Dec()
	}
	if to != "" {
		m.processes.WithLabelValues(to).Inc()
	}
}

// AddEgressRefused counts a connection of a program to a host that is not allowed.
func (m *RunnerMetrics) AddEgressRefused() { m.egressRefused.Inc() }

// AddTokens counts tokens; direction: input, output, cached,
// cache_write, reasoning.
func (m *RunnerMetrics) AddTokens(direction, provider, model string, n int64) {
	if n > 0 {
		m.tokens.WithLabelValues(direction, m.names.name(provider), m.names.name(model)).Add(float64(n))
	}
}

// AddCost counts what an answer has cost.
func (m *RunnerMetrics) AddCost(provider, model string, cost float64) {
	if cost > 0 {
		m.cost.WithLabelValues(m.names.name(provider), m.names.name(model)).Add(cost)
	}
}

// AddRetry counts one repeated model call; class is the driver's error class.
func (m *RunnerMetrics) AddRetry(class string) { m.retries.WithLabelValues(class).Inc() }

// SetSandboxLevel names the one probed level: full, bubblewrap, reduced, off, none.
func (m *RunnerMetrics) SetSandboxLevel(level string) {
	m.sandbox.Reset()
	m.sandbox.WithLabelValues(level).Set(1)
}

// ServerState notes that an MCP server of an agent has another state; empty: it does not run.
func (m *RunnerMetrics) ServerState(server, from, to string) {
	server = m.names.name(server)
	if from != "" {
		m.mcp.WithLabelValues(server, from).Dec()
	}
	if to != "" {
		m.mcp.WithLabelValues(server, to).Inc()
	}
}

// AddServerRestart counts one start of an MCP server that had ended.
func (m *RunnerMetrics) AddServerRestart(server string) {
	m.restart.WithLabelValues(m.names.name(server)).Inc()
}

// DelivererMetrics are the deliverer's.
type DelivererMetrics struct {
	*HookMetrics

	names labelSet

	deliveries *prometheus.CounterVec
	send       *prometheus.HistogramVec
	breaker    *prometheus.GaugeVec
}

// breakerStates are the values of [DelivererMetrics.SetBreaker].
var breakerStates = []string{"closed", "half_open", "open"}

// NewDelivererMetrics makes the deliverer's metrics in r; nil r: uncollected.
func NewDelivererMetrics(r prometheus.Registerer) *DelivererMetrics {
	m := newMaker(r, "deliverer")
	return &DelivererMetrics{
		HookMetrics: NewHookMetrics(r, "deliverer"),

		deliveries: m.counter("deliveries_total", "Delivery attempts by channel and outcome.", "channel", "outcome"),
		send:       m.histogram("send_duration_seconds", "Time of one send by channel.", slow, "channel"),
		breaker:    m.gauge("breaker_state", "1 for the circuit breaker's present state, by channel.", "channel", "state"),
	}
}

// ObserveDelivery records one attempt and its send time; outcome: sent, retry,
// dead, maybe_duplicate, part.
func (m *DelivererMetrics) ObserveDelivery(channel, outcome string, send time.Duration) {
	channel = m.names.name(channel)
	m.deliveries.WithLabelValues(channel, outcome).Inc()
	m.send.WithLabelValues(channel).Observe(send.Seconds())
}

// SetBreaker records the breaker of a channel: closed, half_open or open.
func (m *DelivererMetrics) SetBreaker(channel, state string) {
	channel = m.names.name(channel)
	for _, s := range breakerStates {
		on := 0.0
		if s == state {
			on = 1
		}
		m.breaker.WithLabelValues(channel, s).Set(on)
	}
}

// HookMetrics are those of the hooks that a service calls.
type HookMetrics struct {
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	breakers prometheus.Gauge
}

// NewHookMetrics makes the metrics of the hooks of a service (runner, deliverer or gateway) in r; nil r: uncollected.
func NewHookMetrics(r prometheus.Registerer, service string) *HookMetrics {
	m := newMaker(r, service)
	return &HookMetrics{
		calls:    m.counter("hook_calls_total", "Calls of hooks, by event and outcome.", "event", "outcome"),
		seconds:  m.histogram("hook_seconds", "Time of one call of a hook, by event.", slow, "event"),
		breakers: m.gauge("hook_breakers_open", "Hooks that failed five times in a row and are not called for a minute.").WithLabelValues(),
	}
}

// HookCalled records one call of a hook; outcome: ok, changed, canceled, failed, timeout, or skipped, which is no call.
func (m *HookMetrics) HookCalled(event, outcome string, took time.Duration) {
	m.calls.WithLabelValues(event, outcome).Inc()
	if outcome != "skipped" {
		m.seconds.WithLabelValues(event).Observe(took.Seconds())
	}
}

// HookBreakers records how many breakers are open.
func (m *HookMetrics) HookBreakers(open int) { m.breakers.Set(float64(open)) }

// GatewayMetrics are the gateway's.
type GatewayMetrics struct {
	*HookMetrics

	updates  *prometheus.CounterVec
	accept   *prometheus.HistogramVec
	state    *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
	restarts *prometheus.CounterVec
	notices  *prometheus.CounterVec
	media    prometheus.Counter
	inflight *prometheus.GaugeVec
	refused  *prometheus.CounterVec
	clients  prometheus.Gauge
	reasons  labelSet
}

// NewGatewayMetrics makes the gateway's metrics in r; nil r: uncollected.
func NewGatewayMetrics(r prometheus.Registerer) *GatewayMetrics {
	m := newMaker(r, "gateway")
	return &GatewayMetrics{
		HookMetrics: NewHookMetrics(r, "gateway"),

		updates:  m.counter("updates_total", "Updates that accounts received, by what became of them.", "account", "outcome"),
		accept:   m.histogram("accept_seconds", "From the receipt of a message until it was stored, or was not.", fast, "account"),
		state:    m.gauge("channel_state", "1 for the state that an account is in.", "account", "state"),
		lag:      m.gauge("lag_seconds", "From the sending of the last message that was stored until then.", "account"),
		restarts: m.counter("restarts_total", "Receivers of accounts that ended and were started again.", "account"),
		notices:  m.counter("notices_total", "Notices that were sent to people, by what about.", "kind"),
		media:    m.counter("media_bytes_total", "Bytes of attachments that were stored.").WithLabelValues(),
		inflight: m.gauge("inflight", "Messages of an account that were received and are not stored yet.", "account"),
		refused:  m.counter("refused_total", "Messages and requests that were not taken, by the reason of the error.", "reason"),
		clients:  m.gauge("clients", "Open connections of HTTP.").WithLabelValues(),
	}
}

// AddUpdate notes a message and how long it took until it was stored or not.
func (m *GatewayMetrics) AddUpdate(account, outcome string, took time.Duration) {
	m.updates.WithLabelValues(account, outcome).Inc()
	m.accept.WithLabelValues(account).Observe(took.Seconds())
}

// AddIgnored notes an update that says nothing to the account.
func (m *GatewayMetrics) AddIgnored(account string) {
	m.updates.WithLabelValues(account, "ignored").Inc()
}

// SetChannel notes the state of an account; an empty state forgets the account. Without a lease there is no lag
// either: another gateway has it.
func (m *GatewayMetrics) SetChannel(account, state string) {
	m.state.DeletePartialMatch(prometheus.Labels{"account": account})
	if state != "" {
		m.state.WithLabelValues(account, state).Set(1)
	}
	if state == "" || state == "standby" {
		m.lag.DeleteLabelValues(account)
	}
	if state == "" {
		m.inflight.DeleteLabelValues(account)
	}
}

// SetInflight notes how many messages of an account are on their way.
func (m *GatewayMetrics) SetInflight(account string, n int) {
	m.inflight.WithLabelValues(account).Set(float64(n))
}

// AddRefused notes a message or a request that was not taken.
func (m *GatewayMetrics) AddRefused(reason string) {
	m.refused.WithLabelValues(m.reasons.name(reason)).Inc()
}

// AddClients notes that n more connections of HTTP are open.
func (m *GatewayMetrics) AddClients(n int) { m.clients.Add(float64(n)) }

// SetLag notes how late the last message of an account was stored.
func (m *GatewayMetrics) SetLag(account string, lag time.Duration) {
	m.lag.WithLabelValues(account).Set(lag.Seconds())
}

// AddRestart notes that the receiver of an account ended and is started again.
func (m *GatewayMetrics) AddRestart(account string) { m.restarts.WithLabelValues(account).Inc() }

// AddMedia notes the bytes of an attachment that was stored.
func (m *GatewayMetrics) AddMedia(bytes int) { m.media.Add(float64(bytes)) }

// AddNotice notes a notice that was sent.
func (m *GatewayMetrics) AddNotice(kind string) { m.notices.WithLabelValues(kind).Inc() }
