package layer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// maxFallbacks is how many models can follow the first one.
const maxFallbacks = 8

// HomeSettings are the settings of a home that are not of one agent.
type HomeSettings struct {
	Agents   []AgentEntry
	Bindings []binding.Binding
	Accounts []Account
	Owners   []string // type:peer
	Commands Commands
	Secrets  []Secret
	Servers  []Server // by name
	Gateway  Gateway
	Programs []Program   // by name
	Hooks    []hook.Hook // in the order of the file
	// Workspace is the working directory of the default agent, by agents.defaults; empty: by
	// its flavor.
	Workspace string
	// Version names the bytes of the file; empty: there is none.
	Version string
}

// AgentEntry is an agent of agents.list.
type AgentEntry struct {
	ID, Name, Workspace, AgentDir string
	Default                       bool
	Identity                      Identity
	GroupChat                     GroupChat
}

// Identity is how an agent presents itself.
type Identity struct{ Name, Theme, Emoji string }

// Main returns the agent that is the default by the settings alone: the marked entry, the
// first one, else the agent main.
func (s HomeSettings) Main() string {
	for _, e := range s.Agents {
		if e.Default {
			return e.ID
		}
	}
	if len(s.Agents) > 0 {
		return s.Agents[0].ID
	}
	return "main"
}

// GroupChat is what an agent does in groups. The patterns are regular expressions in the
// syntax of package regexp; a message that one matches mentions the agent. HistoryLimit is
// how many earlier messages precede one that does.
type GroupChat struct {
	MentionPatterns []string
	HistoryLimit    int
}

// maxAccounts is how many accounts a home can have.
const maxAccounts = 64

// defaultHistory is the HistoryLimit of an entry that sets none.
const defaultHistory = 50

// Account is an account of a chat platform, by its name below channels.
type Account struct {
	Name string
	// Definition is how its type reaches the platform.
	channel.Definition
	Default, Enabled bool
	// DM is who may write directly: pairing (default), allowlist, open or off.
	DM        string
	AllowFrom []string
	Groups    AccountGroups
	// Bots means that messages of bots count as those of people; default false: those that AllowFrom or Groups does not
	// list start no turn.
	Bots bool
	// MaxChars is the longest message that the account sends, in the units of its platform; a longer reply goes in
	// parts. 0: as long as the platform takes.
	MaxChars int
	// Rate is how many messages a minute start a turn, and twice as many at once; default 60, 0: any number.
	Rate int
	// MediaMaxMiB is the most MiB of an attachment; default 20, 0: none is taken.
	MediaMaxMiB int
	// CatchUp is how old a message may be that starts a turn when the account receives again; default 24 h. Older ones
	// become context.
	CatchUp time.Duration
	// DMHistoryLimit is how many earlier messages of people a direct conversation has in the prompt; 0: see HistoryOf. DMs
	// has the limits of conversations of their own, by the id of the person.
	DMHistoryLimit int
	DMs            map[string]int
	// Tools are the lists of tools of its conversations, by their kind: dm, group or channel.
	Tools map[string]toolpolicy.Scope
}

// Connects reports whether the account connects to its platform, so that one gateway at a time may
// receive for it, under a lease. Programs post to the others, at any gateway.
func (a Account) Connects() bool {
	t, ok := catalog.Find(a.Type)
	return ok && t.Receive != nil
}

// Sends reports whether the account can send: its type is known, and its entry says where to.
func (a Account) Sends() bool { return catalog.Sends(a.Definition) }

// AccountGroups are the groups of an account. Mode is mention (default), always or off.
type AccountGroups struct {
	Allow     []string
	Mode      string
	AllowFrom []string
}

// Home is a file of the home that was read and checked. It does not change.
type Home struct {
	// Settings are those of the home.
	Settings HomeSettings
	// InboxPaths are the directories outside of the home below which an inbox.path may lie.
	InboxPaths []string

	file     File
	below    *Home // a file whose defaults are below those of this one; nil: there is none
	storage  Storage
	stored   bool                               // storage is given
	defaults []*ast.MappingValueNode            // the keys of agents at the top, and below agents.defaults
	entries  map[string][]*ast.MappingValueNode // those of the entries of agents.list
	at       map[string]place                   // of workspace, and of ID.workspace, ID.identity and ID.name
}

// entry returns the entry of an agent; the zero value when it has none.
func (h *Home) entry(id string) AgentEntry {
	for _, e := range h.Settings.Agents {
		if e.ID == id {
			return e
		}
	}
	return AgentEntry{GroupChat: GroupChat{HistoryLimit: defaultHistory}}
}

// mark records where a key of an entry, or workspace, is.
func (h *Home) mark(key string, n ast.Node) {
	line, column := yamldoc.Position(n)
	h.at[key] = place{file: h.file.Name, line: line, column: column, data: h.file.Data}
}

// ParseHome reads the file of a home. Every error is an [*Error] with all problems found.
func ParseHome(f File) (*Home, error) {
	var problems []Problem
	h := parseHome(f, &problems)
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return h, nil
}

// ReadHome returns the settings of a home that its file has.
func ReadHome(f File) (HomeSettings, error) {
	h, err := ParseHome(f)
	if err != nil {
		return HomeSettings{}, err
	}
	return h.Settings, nil
}

// CheckHome returns what is wrong with the file of a home.
func CheckHome(f File) error {
	_, err := ParseHome(f)
	return err
}

// CheckCentral returns what is wrong with settings that several registries share: storage,
// inbox_paths and gateway belong to one machine.
func CheckCentral(f File) error {
	h, err := ParseHome(f)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		key string
		has bool
	}{{"storage", h.stored}, {"inbox_paths", len(h.InboxPaths) > 0}, {"gateway", !h.Settings.Gateway.isZero()}} {
		if s.has {
			return &Error{Problems: []Problem{{File: f.Name, Key: s.key, Text: s.key + " belongs in the theclaw.yaml of each machine; remove it here"}}}
		}
	}
	return nil
}

func parseHome(f File, problems *[]Problem) *Home {
	h := &Home{file: f, entries: map[string][]*ast.MappingValueNode{}, at: map[string]place{}}
	if len(f.Data) > 0 {
		sum := sha256.Sum256(f.Data)
		h.Settings.Version = hex.EncodeToString(sum[:])
	}
	l := h.layer(problems)
	root, ok := l.parse()
	if !ok || root == nil {
		return h
	}
	l.home = true
	pairs, _ := l.pairs(root, "")
	var list *ast.MappingValueNode
	var defaults ast.Node
	for _, kv := range pairs {
		switch name := key(kv); {
		case name == "defaults" || name == "agents":
			if name == "agents" {
				kv, list = h.agents(l, kv)
			}
			if kv == nil || kv.Value.Type() == ast.NullType {
				continue
			}
			if defaults != nil {
				l.fail(kv, "agents.defaults", "defaults is another name of agents.defaults; keep one of them")
				continue
			}
			defaults = kv.Value
		case name == "bindings":
			h.Settings.Bindings = l.bindings(kv)
		case name == "channels":
			l.accounts(kv, &h.Settings)
		case name == "owners":
			l.owners(kv, &h.Settings)
		case name == "commands":
			l.commands(kv, &h.Settings)
		case name == "secrets":
			l.secrets(kv, &h.Settings)
		case name == "hooks":
			h.Settings.Hooks = l.hooks(kv, nil, true)
		case name == "mcp":
			if kv = without(kv, "servers", func(kv *ast.MappingValueNode) { h.servers(l, kv) }); kv != nil {
				h.defaults = append(h.defaults, kv)
			}
		case name == "tools":
			if kv = without(kv, "programs", func(kv *ast.MappingValueNode) { h.programs(l, kv) }); kv != nil {
				h.defaults = append(h.defaults, kv)
			}
		case name == "inbox_paths":
			h.inboxPaths(l, kv)
		case name == "gateway":
			l.gateway(kv, &h.Settings)
		case name == "storage":
			h.storage, h.stored = l.storage(kv), true
		case name == "workspace":
			l.workspace(kv, &h.Settings.Workspace)
			h.mark("workspace", kv)
		case isAgentKey(name):
			h.defaults = append(h.defaults, kv)
		default:
			l.fail(kv, name, unknownHome(written(kv)))
		}
	}
	if defaults != nil {
		below, ok := l.pairs(defaults, "agents.defaults")
		if !ok {
			l.fail(defaults, "agents.defaults", "agents.defaults must have `key: value` lines below it")
		}
		for _, kv := range below {
			if key(kv) != "workspace" {
				h.defaults = append(h.defaults, kv)
			} else if h.Settings.Workspace != "" {
				l.fail(kv, "workspace", "workspace is set in two places of this file that mean the same; keep one of them")
			} else {
				l.workspace(kv, &h.Settings.Workspace)
				h.mark("workspace", kv)
			}
		}
	}
	scratch := config.Default()
	h.apply("", &scratch, &more{}, map[string]place{}, problems)
	if list != nil {
		h.list(l, list)
	}
	return h
}

// Over returns the settings of this file, which several registries share, with the settings of a
// registry's own file: its storage and its inbox_paths, and its defaults below all others.
// Every error is an [*Error]: the own file has sections that are shared.
func (h *Home) Over(own *Home) (*Home, error) {
	s := own.Settings
	for _, f := range []struct {
		key string
		has bool
	}{{"agents.list", len(s.Agents) > 0}, {"bindings", len(s.Bindings) > 0}, {"owners", len(s.Owners) > 0}, {"channels", len(s.Accounts) > 0}, {"commands", s.Commands.Off || s.Commands.Allow != nil}, {"secrets", len(s.Secrets) > 0}, {"mcp.servers", len(s.Servers) > 0}, {"tools.programs", len(s.Programs) > 0}, {"hooks", len(s.Hooks) > 0}} {
		if f.has {
			return nil, &Error{Problems: []Problem{{
				File: own.file.Name, Key: f.key,
				Text: f.key + " of registries that share a database is in the database; run 'agentctl config import' and remove it here",
			}}}
		}
	}
	both := *h
	both.below, both.storage, both.InboxPaths = own, own.storage, own.InboxPaths
	both.Settings.Gateway = s.Gateway
	return &both, nil
}

func (h *Home) layer(problems *[]Problem) *layer {
	return &layer{file: h.file.Name, data: h.file.Data, home: true, places: map[string]place{}, problems: problems}
}

// apply lays the layers of the file over the settings of an agent; an empty id means the
// defaults alone.
func (h *Home) apply(id string, cfg *config.Config, m *more, places map[string]place, problems *[]Problem) {
	if h.below != nil {
		h.below.apply("", cfg, m, places, problems)
	}
	l := h.layer(problems)
	l.cfg, l.more, l.places = cfg, m, places
	swapToolPlaces(places)
	cfg.ForHome(func() {
		for _, kv := range h.defaults {
			l.setting(kv, "")
		}
		l.finish()
	})
	swapToolPlaces(places)
	m.shared.keep(cfg, places)
	if entry := h.entries[id]; len(entry) > 0 {
		l.set, l.model, l.home = nil, nil, false
		for _, kv := range entry {
			l.setting(kv, "")
		}
		l.finish()
	}
}

// agents splits the section; it returns the pairs of defaults and list.
func (h *Home) agents(l *layer, kv *ast.MappingValueNode) (defaults, list *ast.MappingValueNode) {
	if kv.Value.Type() == ast.NullType {
		return nil, nil
	}
	l.object(kv.Value, "agents", map[string]any{
		"defaults": func(kv *ast.MappingValueNode) { defaults = kv },
		"list":     func(kv *ast.MappingValueNode) { list = kv },
	}, map[string]ast.Node{})
	return defaults, list
}

// list reads agents.list.
func (h *Home) list(l *layer, kv *ast.MappingValueNode) {
	items, ok := yamldoc.Items(kv.Value)
	if !ok && kv.Value.Type() != ast.NullType {
		l.fail(orKey(kv), "agents.list", "agents.list must be a list of agents, each with an id")
	}
	marked := ""
	for i, n := range items {
		full := fmt.Sprintf("agents.list[%d]", i)
		pairs, ok := l.pairs(n, full)
		if !ok {
			l.fail(n, full, full+" wants an id and the settings of the agent")
			continue
		}
		e := AgentEntry{GroupChat: GroupChat{HistoryLimit: defaultHistory}}
		var rest []*ast.MappingValueNode
		at := map[string]ast.Node{}
		for _, kv := range pairs {
			at[key(kv)] = kv
			if !l.entryKey(kv, full, &e) {
				rest = append(rest, kv)
			}
		}
		_, again := h.entries[e.ID]
		switch {
		case at["id"] == nil:
			l.fail(n, full, full+" has no id; add the id of the agent")
			continue
		case !config.IsID(e.ID):
			l.fail(at["id"], full+".id", fmt.Sprintf("%q is not an agent id (lower-case letters, digits, _ and -, at most 64, starting with a letter or digit)", config.Clip(e.ID)))
			continue
		case again:
			l.fail(at["id"], full+".id", fmt.Sprintf("there are two entries with the id %s; keep one of them", e.ID))
			continue
		case e.Default && marked != "":
			l.fail(at["default"], full+".default", fmt.Sprintf("the agents %s and %s are both the default; mark one of them with default: true", marked, e.ID))
		case e.Default:
			marked = e.ID
		}
		for _, name := range []string{"name", "workspace", "agent_dir", "identity"} {
			if n := at[name]; n != nil {
				h.mark(e.ID+"."+name, n)
			}
		}
		h.entries[e.ID] = rest
		h.Settings.Agents = append(h.Settings.Agents, e)
		h.check(l, full, rest)
	}
}

// check reports what is wrong with the settings of an entry.
func (h *Home) check(l *layer, full string, rest []*ast.MappingValueNode) {
	cfg := config.Default()
	entry := &layer{file: l.file, data: l.data, cfg: &cfg, more: &more{}, places: map[string]place{}, problems: l.problems}
	before := len(*l.problems)
	for _, kv := range rest {
		if key(kv) == "agent_id" {
			entry.fail(kv, "agent_id", "the id of an entry is its key id; remove agent_id")
			continue
		}
		entry.setting(kv, "")
	}
	entry.finish()
	for i := before; i < len(*l.problems); i++ {
		(*l.problems)[i].Key = full + "." + (*l.problems)[i].Key
	}
}

// entryKey reads a key that only an entry of agents.list has; false: it is another one.
func (l *layer) entryKey(kv *ast.MappingValueNode, full string, e *AgentEntry) bool {
	var problem string
	switch name := key(kv); name {
	case "id":
		problem = text(kv.Value, &e.ID)
	case "name":
		problem = shortText(kv.Value, &e.Name)
	case "default":
		problem = truth(kv.Value, &e.Default)
	case "workspace":
		l.workspace(kv, &e.Workspace)
	case "agent_dir":
		if problem = text(kv.Value, &e.AgentDir); problem == "" && (config.IsLine(e.AgentDir) != "" || !strings.HasPrefix(e.AgentDir, "/")) {
			problem = "must be an absolute directory"
		}
	case "identity":
		short := func(to *string) func(*ast.MappingValueNode) {
			return func(kv *ast.MappingValueNode) {
				if problem := shortText(kv.Value, to); problem != "" {
					l.fail(orKey(kv), full+".identity", key(kv)+": "+problem)
				}
			}
		}
		i := &e.Identity
		l.object(kv.Value, full+".identity", map[string]any{"name": short(&i.Name), "theme": short(&i.Theme), "emoji": short(&i.Emoji)}, map[string]ast.Node{})
	case "group_chat":
		l.groupChat(kv, full+".group_chat", &e.GroupChat)
	default:
		return false
	}
	if problem != "" {
		l.fail(orKey(kv), full+"."+key(kv), key(kv)+": "+problem)
	}
	return true
}

// shortText reads one line of a few words, which go into prompts and tables.
func shortText(n ast.Node, to *string) string {
	problem := text(n, to)
	if problem == "" && (config.IsLine(*to) != "" || len([]rune(*to)) > 64) {
		problem = "must be one line of at most 64 characters"
	}
	return problem
}

// workspace reads a directory that is absolute or below the user's home directory.
func (l *layer) workspace(kv *ast.MappingValueNode, to *string) {
	problem := text(kv.Value, to)
	if problem == "" && (config.IsLine(*to) != "" || !strings.HasPrefix(*to, "/") && !strings.HasPrefix(*to, "~/")) {
		problem = "must be an absolute directory or one below ~/"
	}
	if problem != "" {
		l.fail(orKey(kv), "workspace", "workspace: "+problem)
	}
}

func (h *Home) inboxPaths(l *layer, kv *ast.MappingValueNode) {
	paths, ok := yamldoc.Items(kv.Value)
	if !ok {
		l.fail(orKey(kv), "inbox_paths", "inbox_paths must be a list of directories")
	}
	for _, n := range paths {
		var s string
		if problem := text(n, &s); problem != "" || config.IsLine(s) != "" {
			l.fail(n, "inbox_paths", "inbox_paths must be a list of directories")
		}
		h.InboxPaths = append(h.InboxPaths, s)
	}
}

// isAgentKey reports whether a key at the top of the file is one of agents, which holds for
// all of them. `channels` at the top are the accounts of the home.
func isAgentKey(key string) bool {
	f := config.Lookup(key)
	return f != nil || config.IsGroup(key) || key == "outbound" || key == "model" || key == "memory_search"
}

// unknownHome is what is wrong with a key at the top of the file that does not exist.
func unknownHome(key string) string {
	keys := config.HomeKeys()
	text := fmt.Sprintf("unknown key %q", config.Clip(key))
	all := append(slices.Clone(keys), append(config.Keys(), config.Groups()...)...)
	return text + cmp.Or(suggest(key, all), "; there are "+strings.Join(keys[:len(keys)-1], ", ")+" and "+keys[len(keys)-1]+", and the keys of agents")
}

func (l *layer) bindings(kv *ast.MappingValueNode) (list []binding.Binding) {
	items, ok := yamldoc.Items(kv.Value)
	switch {
	case !ok && kv.Value.Type() != ast.NullType:
		l.fail(orKey(kv), "bindings", "bindings must be a list of {agent_id: ..., match: {channel: ...}}")
	case len(items) > binding.Max:
		l.fail(orKey(kv), "bindings", fmt.Sprintf("there are %d bindings, and %d are the most; remove some", len(items), binding.Max))
		return nil
	}
	for i, n := range items {
		full := fmt.Sprintf("bindings[%d]", i)
		var b binding.Binding
		before := len(*l.problems)
		l.object(n, full, map[string]any{"agent_id": &b.Agent, "match": func(kv *ast.MappingValueNode) {
			l.object(kv.Value, full+".match", map[string]any{
				"channel": &b.Match.Channel, "account_id": &b.Match.Account, "guild_id": &b.Match.Guild, "team_id": &b.Match.Team,
				"peer": func(kv *ast.MappingValueNode) {
					l.object(kv.Value, full+".match.peer", map[string]any{"kind": &b.Match.Peer.Kind, "id": &b.Match.Peer.ID}, map[string]ast.Node{})
				},
			}, map[string]ast.Node{})
		}}, map[string]ast.Node{})
		if len(*l.problems) == before {
			l.checkBinding(n, full, b)
		}
		list = append(list, b)
	}
	return list
}

// checkBinding reports what is wrong with one binding alone. Whether its agent exists, and
// whether an earlier one hides it, depends on the agents of the home, which are not here.
func (l *layer) checkBinding(n ast.Node, full string, b binding.Binding) {
	if !config.IsID(b.Agent) {
		l.fail(n, full, fmt.Sprintf("%s: agent_id is %q; write the id of an agent", full, config.Clip(b.Agent)))
		return
	}
	_, err := binding.New(binding.Snapshot{Bindings: []binding.Binding{b}})
	if f := fault.From(err); err != nil && f != nil {
		l.fail(n, full, fmt.Sprintf("%s: %s; %s", full, strings.TrimPrefix(f.What, "binding 1: "), f.Fix))
	} else if err != nil {
		l.fail(n, full, fmt.Sprintf("%s: %v", full, err))
	}
}

// accounts reads `channels` at the top.
func (l *layer) accounts(kv *ast.MappingValueNode, s *HomeSettings) {
	entries, ok := yamldoc.Pairs(kv.Value)
	if !ok && kv.Value.Type() != ast.NullType {
		l.fail(kv.Value, "channels", "channels wants the name of an account with type and dm below it")
	}
	if len(entries) > maxAccounts {
		l.fail(orKey(kv), "channels", fmt.Sprintf("there are %d accounts, and %d are the most", len(entries), maxAccounts))
		return
	}
	marked := map[string]string{}
	for _, entry := range entries {
		name := written(entry)
		full := "channels." + name
		a := newAccount(name)
		at := map[string]ast.Node{}
		if !sessionkey.IsWord(name) {
			l.fail(entry, full, fmt.Sprintf("%q is not the name of an account (lower-case letters, digits, _, . and -, and not a word with a meaning in session keys)", config.Clip(name)))
		}
		before := len(*l.problems)
		l.object(entry.Value, full, map[string]any{
			"max_chars": &a.MaxChars, "rate": &a.Rate, "media_max_mib": &a.MediaMaxMiB, "reply_to": &a.ReplyTo, "catchup": &a.CatchUp,
			"dm_history_limit": &a.DMHistoryLimit, "dms": func(kv *ast.MappingValueNode) { l.accountDMs(kv, full+".dms", &a) },
			"type": &a.Type, "default": &a.Default, "enabled": &a.Enabled, "dm": &a.DM, "allow_from": &a.AllowFrom, "bots": &a.Bots,
			"groups": func(kv *ast.MappingValueNode) {
				l.object(kv.Value, full+".groups", map[string]any{"allow": &a.Groups.Allow, "mode": &a.Groups.Mode, "allow_from": &a.Groups.AllowFrom}, at)
			},
			"tools": func(kv *ast.MappingValueNode) { l.accountTools(kv, full+".tools", &a) },
			"url":   &a.URL, "allow_private": &a.AllowPrivate, "secret": &a.Secret,
			"token": &a.Token, "app_token": &a.AppToken, "api": &a.API, "plugin": &a.Plugin,
		}, at)
		if len(*l.problems) == before {
			l.checkAccount(entry, full, a, at, marked)
		}
		s.Accounts = append(s.Accounts, a)
	}
}

func (l *layer) checkAccount(entry *ast.MappingValueNode, full string, a Account, at map[string]ast.Node, marked map[string]string) {
	dms, modes := []string{"pairing", "allowlist", "open", "off"}, []string{"mention", "always", "off"}
	attribute, problem := catalog.CheckAccount(a.Name, a.Definition)
	switch {
	case !sessionkey.IsWord(a.Type):
		l.fail(orElse(at["type"], entry), full, fmt.Sprintf("%s: type is %q; write the type of the account, for example telegram", full, config.Clip(a.Type)))
	case !slices.Contains(dms, a.DM):
		l.fail(orElse(at["dm"], entry), full, fmt.Sprintf("%s: dm: %q is not one of %s", full, config.Clip(a.DM), strings.Join(dms, ", ")))
	case !slices.Contains(modes, a.Groups.Mode):
		l.fail(orElse(at["mode"], entry), full, fmt.Sprintf("%s: groups.mode: %q is not one of %s", full, config.Clip(a.Groups.Mode), strings.Join(modes, ", ")))
	case problem != "":
		l.fail(orElse(at[attribute], entry), full, full+": "+problem)
	case l.outOfBounds(full, a, at):
	case a.Default && marked[a.Type] != "":
		l.fail(orElse(at["default"], entry), full, fmt.Sprintf("the accounts %s and %s are both the default of type %s; mark one of them with default: true", marked[a.Type], a.Name, a.Type))
	case a.Default:
		marked[a.Type] = a.Name
	}
}

func (l *layer) owners(kv *ast.MappingValueNode, s *HomeSettings) {
	problem := texts(kv.Value, &s.Owners)
	for _, o := range s.Owners {
		kind, peer, ok := strings.Cut(o, ":")
		if !ok || !sessionkey.IsWord(kind) || config.IsLine(peer) != "" {
			problem = fmt.Sprintf("%q is not an owner; write type:peer, for example telegram:1207", config.Clip(o))
		}
	}
	if problem != "" {
		l.fail(orKey(kv), "owners", "owners: "+problem)
	}
}
