package layer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
)

// A layer reads one file into a Config and remembers where each key stands.
type layer struct {
	file     string
	data     []byte
	home     bool // the settings of all agents: no keys of a single one
	own      bool // the config.yaml of an agent: no keys of the home
	cfg      *config.Config
	more     *more
	places   map[string]place
	problems *[]Problem

	set   map[string]ast.Node // what this layer has set, by key
	model *model              // what it sets by the key model
}

// place is where a value was given: a file position, or a word for it.
type place struct {
	file         string
	line, column int
	origin       string
	data         []byte
}

func (p place) String() string {
	if p.origin != "" {
		return p.origin
	}
	if p.line == 0 {
		return p.file
	}
	return p.file + ":" + strconv.Itoa(p.line)
}

func (l *layer) fail(n ast.Node, key, text string) {
	if len(*l.problems) >= maxProblems {
		return
	}
	line, column := yamldoc.Position(n)
	*l.problems = append(*l.problems, Problem{
		File: l.file, Line: line, Column: column, Key: key, Text: text, Source: source(l.data, line, column),
	})
}

// parse opens the document; a problem is recorded, not returned.
func (l *layer) parse() (root ast.Node, ok bool) {
	doc, err := l.document()
	if err == nil {
		return doc.Root(), true
	}
	p := Problem{File: l.file, Text: err.Error()}
	if se, is := errors.AsType[*yamldoc.SyntaxError](err); is {
		p.Line, p.Column, p.Text, p.Source = se.Line, se.Column, se.Text, source(l.data, se.Line, se.Column)
	}
	*l.problems = append(*l.problems, p)
	return nil, false
}

// document is the file as a tree. That of the home may be large: it has the bindings.
func (l *layer) document() (*yamldoc.Doc, error) {
	switch {
	case isJSON5(l.file):
		return yamldoc.ParseJSON5(l.data)
	case l.home:
		return yamldoc.ParseUpTo(l.data, yamldoc.MaxHome)
	}
	return yamldoc.Parse(l.data)
}

func isJSON5(file string) bool { return strings.HasSuffix(file, ".json5") }

// mark records where a key is set. A key that the layer has set already, in another mapping
// of it, is a problem.
func (l *layer) mark(key string, n ast.Node) {
	line, column := yamldoc.Position(n)
	if _, again := l.set[key]; again {
		l.fail(n, key, fmt.Sprintf("%s is set in two places of this file that mean the same; keep one of them", key))
		return
	}
	if l.set == nil {
		l.set = map[string]ast.Node{}
	}
	l.set[key] = n
	l.places[key] = place{file: l.file, line: line, column: column, data: l.data}
}

// written is a key as it is written; key is the name that it has here.
func written(kv *ast.MappingValueNode) string { return kv.Key.(*ast.StringNode).Value }

func key(kv *ast.MappingValueNode) string { return canonical(written(kv)) }

// keyIn is the key of a group, whose older names are read as well: tools.bash is tools.exec.
func keyIn(group string, kv *ast.MappingValueNode) string {
	if k := key(kv); group != "tools" || k != "bash" {
		return k
	}
	return "exec"
}

// canonical is the snake_case name of a key: maxAge is another spelling of max_age, and
// flavour of flavor.
func canonical(key string) string {
	if key == "flavour" {
		return "flavor"
	}
	if strings.IndexFunc(key, unicode.IsUpper) <= 0 {
		return key // one that begins with a capital letter is in no spelling a key
	}
	var b strings.Builder
	for _, r := range key {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// pairs returns the entries of a mapping whose keys are names of ours, without those that
// are there in a second spelling, which are problems.
func (l *layer) pairs(n ast.Node, full string) (pairs []*ast.MappingValueNode, ok bool) {
	all, ok := yamldoc.Pairs(n)
	if !ok {
		return nil, false
	}
	first := make(map[string]string, len(all))
	for _, kv := range all {
		name := keyIn(full, kv)
		if other, again := first[name]; again {
			l.fail(kv, full, fmt.Sprintf("%q and %q are two spellings of one key; keep one of them", config.Clip(other), config.Clip(written(kv))))
			continue
		}
		first[name] = written(kv)
		pairs = append(pairs, kv)
	}
	return pairs, true
}

// settings reads a mapping of keys; prefix is "" or a group with its dot.
func (l *layer) settings(n ast.Node, prefix string) {
	pairs, ok := l.pairs(n, strings.TrimSuffix(prefix, "."))
	if !ok {
		group := strings.TrimSuffix(prefix, ".")
		l.fail(n, group, strings.TrimSpace(group+" must have `key: value` lines below it"))
		return
	}
	for _, kv := range pairs {
		l.setting(kv, prefix)
	}
}

func (l *layer) setting(kv *ast.MappingValueNode, prefix string) {
	full := prefix + keyIn(strings.TrimSuffix(prefix, "."), kv)
	f := config.Lookup(full)
	switch {
	case f != nil && f.Own && l.home:
		l.fail(kv, full, fmt.Sprintf("%q belongs in the config.yaml of one agent, not among the defaults", full))
	case f != nil && f.OfHome && l.own:
		l.fail(kv, full, fmt.Sprintf("%q belongs in theclaw.yaml, at its top, below agents.defaults, or in the entry of the agent in agents.list", full))
	case f != nil:
		if l.scalar(f, kv) {
			l.mark(full, kv)
		}
	case config.IsGroup(full):
		// A group whose lines are all comments is empty, not wrong.
		if kv.Value.Type() != ast.NullType {
			l.settings(kv.Value, full+".")
		}
	case full == "outbound":
		l.outbound(kv)
	case full == "channels":
		l.channels(kv)
	case full == "model":
		l.readModel(kv)
	case full == "memory_search":
		l.memorySearch(kv)
	case full == "hooks" && l.own:
		l.more.hooks = l.hooks(kv, l.more.hooks, false)
	case full == "hooks":
		l.fail(kv, full, "hooks belongs at the top of theclaw.yaml, with match.agents where it is for some agents, or in the config.yaml of one agent")
	case full == "tools.by_provider":
		l.byProvider(kv)
	default:
		l.fail(kv, full, unknown(prefix+written(kv), l.home))
	}
}

// unknown is what is wrong with a key of an agent that does not exist.
func unknown(full string, home bool) string {
	text := fmt.Sprintf("unknown key %q", config.Clip(full))
	for _, top := range []string{"mcp.servers", "tools.programs"} {
		if full == top || strings.HasPrefix(full, top+".") {
			return text + "; " + top + " belongs at the top of theclaw.yaml"
		}
	}
	if top, _, _ := strings.Cut(full, "."); !home && top != "channels" && !config.IsGroup(top) && slices.Contains(config.HomeKeys(), top) {
		return text + "; " + top + " belongs in theclaw.yaml"
	}
	keys := append(config.Keys(), config.Groups()...)
	if rest, ok := strings.CutPrefix(full, "channels."); ok {
		name, _, _ := strings.Cut(rest, ".")
		for _, s := range config.Explain("channels." + name) {
			keys = append(keys, strings.Replace(s.Key, config.ChannelName, name, 1))
		}
	}
	return text + suggest(full, keys)
}

// scalar stores the value of kv in its field.
func (l *layer) scalar(f *config.Field, kv *ast.MappingValueNode) bool {
	var problem string
	switch ref := f.Ref(l.cfg).(type) {
	case *string:
		problem = text(kv.Value, ref)
	case *int:
		problem = number(kv.Value, ref)
	case *bool:
		problem = truth(kv.Value, ref)
	case *config.Switch:
		problem = choice(kv.Value, ref)
	case *config.Network:
		problem = network(kv.Value, ref)
	case *config.Amount:
		problem = amount(kv.Value, ref)
	case *config.Variables:
		problem = l.variables(f.Key, kv.Value, ref)
	case *config.Delay:
		problem = delay(kv.Value, ref)
	case *config.Transcribe:
		problem = transcribe(kv.Value, ref)
	case *time.Duration:
		problem = duration(kv.Value, ref)
	case *[]string:
		var list []string
		if problem = texts(kv.Value, &list); f.Adds {
			list = append(slices.Clip(*ref), list...)
		}
		if len(list) == 0 {
			list = nil
		}
		*ref = list
	}
	if problem == "" {
		problem = f.Check(l.cfg)
	}
	if problem != "" {
		l.fail(orKey(kv), f.Key, f.Key+": "+problem)
		return false
	}
	return true
}

// orKey is the value of kv, or its key when there is nothing to point at.
func orKey(kv *ast.MappingValueNode) ast.Node {
	if kv.Value.Type() == ast.NullType {
		return kv
	}
	return kv.Value
}

func text(n ast.Node, to *string) string {
	switch n := n.(type) {
	case *ast.StringNode:
		*to = n.Value
		return ""
	case *ast.LiteralNode: // older tools fold long paths into several lines
		*to = n.Value.Value
		return ""
	case *ast.NullNode:
		return "has no value; give one or remove the key"
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return "must be text; put the value in quotes"
	}
	return "must be text on one line"
}

// texts reads a list of texts.
func texts(n ast.Node, to *[]string) string {
	items, ok := yamldoc.Items(n)
	if !ok {
		return "must be a list of texts"
	}
	list := make([]string, len(items))
	for i, item := range items {
		if problem := text(item, &list[i]); problem != "" {
			return fmt.Sprintf("entry %d %s", i+1, problem)
		}
	}
	*to = list
	return ""
}

func number(n ast.Node, to *int) string {
	if v, ok := n.(*ast.IntegerNode); ok {
		return config.ParseNumber(v.GetToken().Value, to)
	}
	if v, ok := n.(*ast.StringNode); ok {
		return fmt.Sprintf("must be a whole number, not %.40q", v.Value)
	}
	return "must be a whole number"
}

func duration(n ast.Node, to *time.Duration) string {
	var s string
	if text(n, &s) != "" {
		s = ""
	}
	return config.ParseDuration(s, to)
}

func truth(n ast.Node, to *bool) string {
	v, ok := n.(*ast.BoolNode)
	if !ok {
		return "must be true or false"
	}
	*to = v.Value
	return ""
}

// network reads a word, true or false, or a list of hosts.
func network(n ast.Node, to *config.Network) string {
	switch n := n.(type) {
	case *ast.BoolNode:
		return config.ParseNetwork(strconv.FormatBool(n.Value), to)
	case *ast.StringNode:
		return config.ParseNetwork(n.Value, to)
	case *ast.SequenceNode:
		var hosts []string
		problem := texts(n, &hosts)
		*to = config.Network{Hosts: hosts}
		return problem
	}
	return config.ParseNetwork("", to)
}

// amount reads a number, or a text with a unit.
func amount(n ast.Node, to *config.Amount) string {
	switch n := n.(type) {
	case *ast.IntegerNode:
		*to = config.Amount(n.GetToken().Value)
	case *ast.FloatNode:
		*to = config.Amount(n.GetToken().Value)
	case *ast.StringNode:
		*to = config.Amount(n.Value)
	default:
		return "must be a number"
	}
	return ""
}

// variables reads a mapping of texts. It is merged with that of an earlier layer, and replaces the default.
func (l *layer) variables(key string, n ast.Node, to *config.Variables) string {
	merged := config.Variables{}
	if _, set := l.places[key]; set {
		maps.Copy(merged, *to)
	}
	*to = merged
	if n.Type() == ast.NullType {
		return ""
	}
	pairs, ok := yamldoc.Pairs(n)
	if !ok {
		return "must be NAME: VALUE lines"
	}
	for _, kv := range pairs {
		var value string
		if problem := text(kv.Value, &value); problem != "" {
			return config.Clip(written(kv)) + " " + problem
		}
		merged[written(kv)] = value
	}
	return ""
}

// delay reads a word, or the bounds min and max.
func delay(n ast.Node, to *config.Delay) string {
	if n, ok := n.(*ast.StringNode); ok {
		return config.ParseDelay(n.Value, to)
	}
	pairs, ok := yamldoc.Pairs(n)
	if !ok {
		return config.ParseDelay("", to)
	}
	bounds := map[string]string{}
	for _, kv := range pairs {
		var value string
		if problem := text(kv.Value, &value); problem != "" {
			return config.Clip(written(kv)) + " " + problem
		}
		bounds[written(kv)] = value
	}
	return config.DelayOf(bounds, to)
}

// transcribe reads a word, or a mapping of a provider or a command. It replaces that of an earlier layer.
func transcribe(n ast.Node, to *config.Transcribe) string {
	if n, ok := n.(*ast.StringNode); ok {
		return config.ParseTranscribe(n.Value, to)
	}
	pairs, ok := yamldoc.Pairs(n)
	if !ok {
		return config.ParseTranscribe("", to)
	}
	var t config.Transcribe
	for _, kv := range pairs {
		var value string
		if key(kv) != "command" {
			if problem := text(kv.Value, &value); problem != "" {
				return config.Clip(written(kv)) + " " + problem
			}
		}
		if problem := t.Set(key(kv), value, func(list *[]string) string { return texts(kv.Value, list) }); problem != "" {
			return problem
		}
	}
	*to = t
	return ""
}

func choice(n ast.Node, to *config.Switch) string {
	switch n := n.(type) {
	case *ast.BoolNode:
		return config.ParseSwitch(strconv.FormatBool(n.Value), to)
	case *ast.StringNode:
		return config.ParseSwitch(n.Value, to)
	}
	return config.ParseSwitch("", to)
}

// outbound reads the list; an empty one is kept apart from no key.
func (l *layer) outbound(kv *ast.MappingValueNode) {
	list, ok := kv.Value.(*ast.SequenceNode)
	if !ok {
		l.fail(orKey(kv), "outbound", "outbound must be a list of thread_pattern and via; leave the key out for the default, [] for no external delivery")
		return
	}
	out := make([]config.Outbound, 0, len(list.Values))
	for i, item := range list.Values {
		var o config.Outbound
		at := map[string]ast.Node{}
		l.object(item, fmt.Sprintf("outbound[%d]", i), map[string]any{"thread_pattern": &o.ThreadPattern, "via": &o.Via}, at)
		if problem := channel.CheckPattern(o.ThreadPattern); problem != "" {
			l.fail(orElse(at["thread_pattern"], item), "outbound", problem)
		}
		if !config.IsName(o.Via) {
			l.fail(orElse(at["via"], item), "outbound", "via wants the name of a channel")
		}
		if n := at["via"]; n != nil {
			l.mark(fmt.Sprintf("outbound[%d]", i), n)
		}
		out = append(out, o)
	}
	l.cfg.Outbound = out
	l.mark("outbound", kv)
}

func orElse(n, other ast.Node) ast.Node {
	if n == nil {
		return other
	}
	return n
}

// channels adds named channels; a name given again replaces the complete entry.
func (l *layer) channels(kv *ast.MappingValueNode) {
	if kv.Value.Type() == ast.NullType {
		return
	}
	pairs, ok := yamldoc.Pairs(kv.Value)
	if !ok {
		l.fail(kv.Value, "channels", "channels wants `name:` with type, url, secret below it")
		return
	}
	merged := maps.Clone(l.cfg.Channels)
	if merged == nil {
		merged = map[string]config.Channel{}
	}
	for _, entry := range pairs {
		var c config.Channel
		at := map[string]ast.Node{}
		name := written(entry)
		if !config.IsID(name) {
			l.fail(entry, "channels", fmt.Sprintf("%q is not a channel name (lower-case letters, digits, _ and -)", config.Clip(name)))
			continue
		}
		full := "channels." + name
		before := len(*l.problems)
		l.object(entry.Value, full, map[string]any{"type": &c.Type, "url": &c.URL, "secret": &c.Secret, "allow_private": &c.AllowPrivate}, at)
		if attribute, problem := catalog.Check(name, channel.Definition{Type: c.Type, URL: c.URL, Secret: c.Secret, AllowPrivate: c.AllowPrivate}); problem != "" && len(*l.problems) == before {
			l.fail(orElse(at[attribute], entry), full, full+": "+problem)
		}
		merged[name] = c
		l.mark(full, entry)
	}
	l.cfg.Channels = merged
}

// object reads a mapping whose attributes are all known, and notes their nodes.
func (l *layer) object(n ast.Node, full string, into map[string]any, at map[string]ast.Node) {
	pairs, ok := l.pairs(n, full)
	if !ok {
		l.fail(n, full, full+" wants "+words(into))
		return
	}
	for _, kv := range pairs {
		var problem string
		switch to := into[key(kv)].(type) {
		case *string:
			problem = text(kv.Value, to)
		case *bool:
			problem = truth(kv.Value, to)
		case *[]string:
			problem = texts(kv.Value, to)
		case *int:
			problem = number(kv.Value, to)
		case *time.Duration:
			problem = duration(kv.Value, to)
		case func(*ast.MappingValueNode):
			to(kv)
		default:
			text := suggest(key(kv), slices.Sorted(maps.Keys(into)))
			l.fail(kv, full, fmt.Sprintf("unknown key %q in %s%s; there are %s", config.Clip(written(kv)), full, text, words(into)))
			continue
		}
		at[key(kv)] = orKey(kv)
		if problem != "" {
			l.fail(orKey(kv), full, key(kv)+": "+problem)
		}
	}
}

func words(m map[string]any) string {
	names := slices.Sorted(maps.Keys(m))
	out := names[0]
	for _, n := range names[1:] {
		out += ", " + n
	}
	return out
}
