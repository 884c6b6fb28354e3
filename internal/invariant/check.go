package invariant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/database"
	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Severity of a finding.
type Severity string

// Severities. A Violation breaks a promise; a Warning is harmless alone and should be
// repaired; of a Note nothing has to be done.
const (
	Violation Severity = "violation"
	Warning   Severity = "warning"
	Note      Severity = "note"
)

// Finding is one thing that is not as it must be.
type Finding struct {
	Invariant string   `json:"invariant"` // "I2"; "config" for settings that cannot be read, "media" for media without their data
	Agent     string   `json:"agent"`     // empty: the home
	Thread    string   `json:"thread"`    // empty: the agent
	Event     int64    `json:"event"`     // of the thread, or of the inbox where What says so; 0: of no single one
	What      string   `json:"what"`
	Fix       string   `json:"fix"`
	Severity  Severity `json:"severity"`
}

// String is one line.
func (f Finding) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", f.Invariant, f.Agent, f.Thread, f.What))
}

// Options of a check; the zero value checks the databases and modes of a home
// where nobody works.
type Options struct {
	Agent    string // only this one; empty: all
	Live     bool   // services may be at work in the home
	Drained  bool   // nothing may be without a fate or unsent any more
	UserHome string // what ~/ stands for in inbox.path
	// DSN is the URL of the database where several registries keep the agents; of the
	// home only files are looked at. Empty: they are in the home.
	DSN string
	Now time.Time

	Sink     []Arrival // what receivers saw, in order; nil: not known
	History  *History  // what clients received; nil: not known
	Runs     []string  // idempotency keys of tools that ran, in order; nil: not known
	Canaries []Canary
	Prompts  []Prompt
	Secrets  []string          // texts that may be nowhere
	Texts    map[string]string // outputs to search for secrets, by name: metrics, errors, an environment
	Acks     map[string]int64  // Stats.Acks of an earlier check of the same home
}

// Arrival is one message as a receiver saw it.
type Arrival struct {
	Key            string
	MaybeDuplicate bool
	Agent, Thread  string
	EventID        int64
	At             time.Time
}

// History is what clients of a home received.
type History struct {
	Pushes  []Push
	Grants  []Grant
	Commits []Commit
}

// Push is an acknowledged push into an inbox.
type Push struct {
	Agent, Key string
	IDs        []int64
}

// Grant is a granted lease.
type Grant struct {
	Resource, Holder string
	Token            uint64
}

// Commit is an acknowledged write under a lease.
type Commit struct {
	Agent, Thread, Resource string
	Token                   uint64
}

// Canary is a text that only one context may hold: those of Thread, or of
// threads where Peer speaks, or of the whole agent when both are empty.
type Canary struct{ Text, Agent, Thread, Peer string }

// Prompt is what a model was asked in a thread while Peer spoke.
type Prompt struct{ Agent, Thread, Peer, Text string }

// Stats is how much was looked at.
type Stats struct {
	Agents, Databases, Events, Chained, Turns, Deliveries, Files int
	// Acks by agent/thread/consumer, for Options.Acks of the next check.
	Acks map[string]int64
}

// check is one examination of one home.
type check struct {
	o        Options
	path     layout.Home
	home     *snapshot.Home
	stats    Stats
	findings []Finding
}

// Check examines a home. The error is about the home as a whole; everything else
// is a finding. On a home at work each database is read at one state of its own.
func Check(ctx context.Context, home layout.Home, o Options) ([]Finding, Stats, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	c := &check{o: o, path: home, stats: Stats{Acks: map[string]int64{}}}
	read := snapshot.Options{Agent: o.Agent, Live: o.Live, UserHome: o.UserHome}
	for _, k := range o.Canaries {
		read.Search = append(read.Search, k.Text)
	}
	var err error
	if o.DSN != "" {
		c.home, err = database.Read(ctx, o.DSN, read)
	} else {
		c.home, err = snapshot.Read(ctx, home, read)
	}
	if err != nil {
		return nil, c.stats, fmt.Errorf("read home: %w", err)
	}
	c.count()
	records := record.All(c.home)
	for _, a := range c.home.Agents {
		if what, fix := settingsProblem(home, a); what != "" {
			c.findings = append(c.findings, Finding{"config", a.ID, "", 0, "the settings cannot be read: " + what, fix, Violation})
		}
		for _, d := range a.All() {
			r := records[d]
			c.i17(d, r.Broken)
			c.i18(d, r.Mirror)
		}
		c.agent(a)
	}
	c.i3History()
	c.i4History()
	c.i6()
	c.i6History()
	c.i9Sink()
	c.i10()
	c.i14()
	c.i21()
	if err := c.files(ctx); err != nil {
		return c.findings, c.stats, err
	}
	c.i15Texts()
	return c.findings, c.stats, ctx.Err()
}

// agent runs what looks at one agent; databases that could not be read whole
// would only be found again and again.
func (c *check) agent(a *snapshot.Agent) {
	if sound(a.Inbox) {
		c.i1(a.Inbox)
		c.i20(a)
		c.i3Inbox(a)
		c.i3Lost(a)
		c.i23(a)
		c.i41(a)
		c.media(a)
	}
	c.i24(a)
	c.i40i42(a)
	for _, d := range a.All() {
		if !sound(d) {
			continue
		}
		c.i4(d)
		c.i5(d)
		c.i7(d)
		if d.IsInbox() {
			continue
		}
		c.i2(d)
		c.i3Thread(d)
		c.i8(d)
		c.i9(d)
		c.i11(d)
		c.i12(a, d)
	}
}

// sound reports whether a database was read whole.
func sound(d *snapshot.DB) bool { return len(d.Unread) == 0 }

func (c *check) count() {
	c.stats.Agents = len(c.home.Agents)
	for _, a := range c.home.Agents {
		for _, d := range a.All() {
			c.stats.Databases++
			c.stats.Events += len(d.Events)
			c.stats.Chained += len(d.Links)
			c.stats.Turns += len(d.Turns)
			c.stats.Deliveries += len(d.Deliveries)
			for consumer, id := range d.Acks {
				c.stats.Acks[d.Agent+"/"+d.Thread+"/"+consumer] = id
			}
		}
	}
}

// report notes a violation in a database.
func (c *check) report(invariant string, d *snapshot.DB, event int64, fix, format string, args ...any) {
	if c.home.Shared { // nothing repairs a database
		fix = "keep a dump of the database and report it; other agents are not touched"
	}
	c.findings = append(c.findings, Finding{invariant, d.Agent, d.Thread, event, fmt.Sprintf(format, args...), fix, Violation})
}

// warn notes what is harmless alone.
func (c *check) warn(invariant string, d *snapshot.DB, event int64, fix, format string, args ...any) {
	c.report(invariant, d, event, fix, format, args...)
	c.findings[len(c.findings)-1].Severity = Warning
}

// agentNamed answers an agent that was read.
func (c *check) agentNamed(id string) *snapshot.Agent {
	i := slices.IndexFunc(c.home.Agents, func(a *snapshot.Agent) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return c.home.Agents[i]
}

// repairOf is the command that repairs what can be repaired.
func repairOf(agent string) string { return "run 'agentctl fsck --repair --agent " + agent + "'" }

// look is the fix of what no program may decide: it is evidence of a mistake in
// this software, or of another hand in the database.
func look(agent string) string {
	return "keep a copy of agents/" + agent + " and report it; other agents are not touched"
}
