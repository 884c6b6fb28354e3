package execpolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxDocument is the largest document, in bytes, and MaxEntries the most entries of an agent.
const (
	MaxDocument = 1 << 20
	MaxEntries  = 1000
)

// Document is the policy of an installation, in the form of exec-approvals.json.
type Document struct {
	Version  int              `json:"version"` // 1
	Defaults Rules            `json:"defaults"`
	Agents   map[string]Agent `json:"agents,omitempty"`
}

// Rules bound the settings of agents. What is empty is taken from the defaults of the document,
// and there from the strictest: deny, on-miss, deny.
type Rules struct {
	Security    Security `json:"security,omitempty"`
	Ask         Ask      `json:"ask,omitempty"`
	AskFallback Security `json:"askFallback,omitempty"`
	// AutoAllowSkills is kept and has no effect: a skill grants nothing.
	AutoAllowSkills *bool `json:"autoAllowSkills,omitempty"`
}

// Agent is what a document has of one agent.
type Agent struct {
	Rules
	Allowlist []Allowed `json:"allowlist,omitempty"`
}

// Allowed is an entry as it is stored.
type Allowed struct {
	ID      string   `json:"id,omitempty"`
	Pattern string   `json:"pattern"`
	Args    []string `json:"args,omitempty"`
	// LastUsedAt is in milliseconds since 1970; 0: not yet.
	LastUsedAt      float64 `json:"lastUsedAt,omitempty"`
	LastUsedCommand string  `json:"lastUsedCommand,omitempty"`
}

// Entry returns what decides of the entry.
func (a Allowed) Entry() Entry { return Entry{Pattern: a.Pattern, Args: a.Args} }

// NewDocument returns a document that bounds no agent.
func NewDocument() Document {
	return Document{Version: 1, Defaults: Rules{Security: Full, Ask: AskOff, AskFallback: Full}}
}

// Parse reads a document. Members that are not of this form are dropped: files of other programs hold
// a secret of theirs. The entry of the agent "default" is read as of main.
func Parse(b []byte) (Document, error) {
	if len(b) > MaxDocument {
		return Document{}, fmt.Errorf("the policy is larger than %d bytes", MaxDocument)
	}
	var d Document
	if !utf8.Valid(b) || bytes.Contains(b, []byte(`\u0000`)) { // which not every engine can store
		return d, errors.New("the policy is not UTF-8, or has a NUL")
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return d, fmt.Errorf("the policy is no JSON of the right form: %w", err)
	}
	if d.Version != 1 {
		return d, fmt.Errorf("the policy has version %d; 1 is known", d.Version)
	}
	if old, ok := d.Agents["default"]; ok {
		main := d.Agents["main"]
		main.Rules = main.Rules.or(old.Rules)
		main.Allowlist = append(main.Allowlist, old.Allowlist...)
		d.Agents["main"] = main
		delete(d.Agents, "default")
	}
	if err := d.Defaults.check("defaults"); err != nil {
		return d, err
	}
	for _, id := range slices.Sorted(maps.Keys(d.Agents)) {
		a := d.Agents[id]
		if err := a.check("agents." + id); err != nil {
			return d, err
		}
		if len(a.Allowlist) > MaxEntries {
			return d, fmt.Errorf("agents.%s has more than %d entries", id, MaxEntries)
		}
		newID := a.newIDs()
		for i := range a.Allowlist {
			e := &a.Allowlist[i]
			if strings.TrimSpace(e.Pattern) == "" || len(e.Pattern) > maxPattern || len(e.Args) > maxArgs {
				return d, fmt.Errorf("agents.%s has an entry without a pattern, with one above %d bytes, or with more than %d args", id, maxPattern, maxArgs)
			}
			if e.ID == "" {
				e.ID = newID()
			}
		}
	}
	return d, nil
}

const (
	maxPattern = 4096 // bytes
	maxArgs    = 16
)

func (r Rules) check(where string) error {
	switch {
	case r.Security != "" && !slices.Contains(securities, r.Security):
		return fmt.Errorf("%s.security is %q; use deny, allowlist or full", where, r.Security)
	case r.Ask != "" && !slices.Contains(asks, r.Ask):
		return fmt.Errorf("%s.ask is %q; use off, on-miss or always", where, r.Ask)
	case r.AskFallback != "" && !slices.Contains(securities, r.AskFallback):
		return fmt.Errorf("%s.askFallback is %q; use deny, allowlist or full", where, r.AskFallback)
	}
	return nil
}

// or returns r with what it lacks from others.
func (r Rules) or(others Rules) Rules {
	if r.Security == "" {
		r.Security = others.Security
	}
	if r.Ask == "" {
		r.Ask = others.Ask
	}
	if r.AskFallback == "" {
		r.AskFallback = others.AskFallback
	}
	if r.AutoAllowSkills == nil {
		r.AutoAllowSkills = others.AutoAllowSkills
	}
	return r
}

// newIDs returns a function that returns ids that no entry has, each once: the smallest numbers,
// as they need be unique in one agent only.
func (a Agent) newIDs() func() string {
	taken := map[string]bool{}
	for _, e := range a.Allowlist {
		taken[e.ID] = true
	}
	n := 0
	return func() string {
		for n++; taken[strconv.Itoa(n)]; n++ {
		}
		return strconv.Itoa(n)
	}
}

// Rules returns what bounds an agent, complete.
func (d Document) Rules(agent string) Rules {
	return d.Agents[agent].or(d.Defaults).or(Rules{Security: Deny, Ask: AskOnMiss, AskFallback: Deny})
}

// Bound returns the stricter of the policy of an agent's settings and the document, with the
// entries of the document.
func (d Document) Bound(agent string, p Policy) Policy {
	r := d.Rules(agent)
	p.Security, p.Ask, p.Fallback = StricterSecurity(p.Security, r.Security), StricterAsk(p.Ask, r.Ask), StricterSecurity(p.Fallback, r.AskFallback)
	for _, e := range d.Agents[agent].Allowlist {
		p.Allow = append(p.Allow, e.Entry())
	}
	return p
}

// Add adds entries to the list of an agent, those that are new to it.
func (d *Document) Add(agent string, entries []Entry) {
	a := d.Agents[agent]
	newID := a.newIDs()
	for _, e := range entries {
		if slices.ContainsFunc(a.Allowlist, func(o Allowed) bool { return o.Pattern == e.Pattern && slices.Equal(o.Args, e.Args) }) {
			continue
		}
		a.Allowlist = append(a.Allowlist, Allowed{ID: newID(), Pattern: e.Pattern, Args: e.Args})
	}
	d.put(agent, a)
}

// Set replaces the rules of an agent that are not empty in r.
func (d *Document) Set(agent string, r Rules) {
	a := d.Agents[agent]
	a.Rules = r.or(a.Rules)
	d.put(agent, a)
}

// Take replaces what d has of an agent by what another document has, with the same meaning.
func (d *Document) Take(from Document, agent string) {
	a := from.Agents[agent]
	a.Rules = from.Rules(agent)
	d.put(agent, a)
}

// SetDefaults replaces the rules of the agents that have none where r is not empty.
func (d *Document) SetDefaults(r Rules) { d.Defaults = r.or(d.Defaults) }

// Remove takes an entry of an agent away; false when there is none with the id.
func (d *Document) Remove(agent, id string) bool {
	a := d.Agents[agent]
	left := slices.DeleteFunc(slices.Clone(a.Allowlist), func(e Allowed) bool { return e.ID == id })
	if len(left) == len(a.Allowlist) {
		return false
	}
	a.Allowlist = left
	d.put(agent, a)
	return true
}

func (d *Document) put(agent string, a Agent) {
	if d.Agents == nil {
		d.Agents = map[string]Agent{}
	}
	d.Agents[agent] = a
}

// UseNoted is how often the use of an entry is recorded at most.
const UseNoted = time.Hour

// Touch records that entries of an agent allowed a command. It reports whether that changed
// anything: a use is recorded once in [UseNoted].
func (d *Document) Touch(agent string, used []Entry, command string, now time.Time) (changed bool) {
	list := d.Agents[agent].Allowlist
	for i, a := range list {
		match := func(e Entry) bool { return e.Pattern == a.Pattern && slices.Equal(e.Args, a.Args) }
		if float64(now.Add(-UseNoted).UnixMilli()) > a.LastUsedAt && slices.ContainsFunc(used, match) {
			list[i].LastUsedAt, list[i].LastUsedCommand = float64(now.UnixMilli()), clip(command)
			changed = true
		}
	}
	return changed
}

// ForgetCommands empties the last commands of an agent's list; false when there is none.
func (d *Document) ForgetCommands(agent string) (changed bool) {
	list := d.Agents[agent].Allowlist
	for i := range list {
		changed = changed || list[i].LastUsedCommand != ""
		list[i].LastUsedCommand = ""
	}
	return changed
}

// clip bounds what is kept of a command.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// JSON returns the document as it is stored; an error when [Parse] would refuse that, such as
// for its size.
func (d Document) JSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	if _, err := Parse(b.Bytes()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
