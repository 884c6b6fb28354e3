package layer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
)

// Set returns in.Agent with one key changed, everything else byte for byte as it
// was, and checks the result together with the other layers. value is what a person
// types: text for a single setting, one-line YAML for outbound ("[]"), channels.NAME
// ("{type: webhook, url: ...}") and text for an attribute channels.NAME.url.
//
// Errors are [*Error]; when the file is laid out so that a change in place would
// touch more than the value, the problem says to edit it by hand.
func Set(in Layers, key, value string) ([]byte, error) {
	fail := func(text string) ([]byte, error) {
		return nil, &Error{Problems: []Problem{{File: in.Agent.Name, Key: key, Text: text}}}
	}
	path, flow, problem := render(key, value)
	if problem != "" {
		return fail(problem)
	}
	doc, err := yamldoc.Parse(in.Agent.Data)
	if err != nil {
		_, err = Load(in) // says the same with the place shown
		return nil, err
	}
	out, err := doc.Set(spelled(doc.Root(), path), flow)
	if errors.Is(err, yamldoc.ErrInPlace) {
		return fail(fmt.Sprintf("%s cannot be changed without touching the lines around it; edit the file by hand", key))
	}
	if err != nil {
		return nil, err
	}
	in.Agent.Data, in.Overrides = out, nil
	if _, err := Load(in); err != nil {
		return nil, err
	}
	return out, nil
}

// Unset returns a config.yaml without a key, everything else byte for byte as it was, and whether the key was there.
// Errors are [*Error]; [Load] reads the result.
func Unset(f File, key string) (data []byte, existed bool, err error) {
	fail := func(text string) ([]byte, bool, error) {
		return nil, false, &Error{Problems: []Problem{{File: f.Name, Key: key, Text: text}}}
	}
	doc, err := yamldoc.Parse(f.Data)
	if err != nil {
		return fail(err.Error())
	}
	path := spelled(doc.Root(), strings.Split(key, "."))
	if !doc.Has(path) {
		return f.Data, false, nil
	}
	if data, err = doc.Remove(path); errors.Is(err, yamldoc.ErrInPlace) {
		return fail(fmt.Sprintf("%s cannot be removed without touching the lines around it; edit the file by hand", key))
	}
	return data, true, err
}

// SetHomeValue returns the file of a home with the value at a path of keys replaced by one-line YAML, or with the key
// removed when that is empty, everything else byte for byte as it was, and whether the key was there. Errors are
// [*Error]; [ParseHome] reads the result.
func SetHomeValue(f File, path []string, value string) (data []byte, existed bool, err error) {
	full := strings.Join(path, ".")
	fail := func(text string) ([]byte, bool, error) {
		return nil, false, &Error{Problems: []Problem{{File: f.Name, Key: full, Text: text}}}
	}
	if config.IsLine(full) != "" { // a caller may send any text
		full = fmt.Sprintf("%q", config.Clip(full))
		return fail(full + " is not a key; write keys of letters, digits, _ and -")
	}
	doc, err := yamldoc.ParseUpTo(f.Data, yamldoc.MaxHome)
	if err != nil {
		_, err = ParseHome(f) // says the same with the place shown
		return nil, false, err
	}
	path = spelled(doc.Root(), path)
	existed = doc.Has(path)
	switch {
	case strings.ContainsAny(value, "\r\n"):
		return fail(full + " must be one line of YAML")
	case value != "":
		data, err = doc.Set(path, value)
	case existed:
		if data, err = doc.Remove(path); err == nil && len(data) == 0 {
			data = []byte("# There are no settings.\n") // an empty file is one that a program is still writing
		}
	default:
		data = f.Data
	}
	if errors.Is(err, yamldoc.ErrInPlace) {
		return fail(full + " cannot be changed without touching the lines around it; edit the file by hand")
	}
	if err != nil {
		return fail(err.Error())
	}
	_, err = ParseHome(File{f.Name, data})
	return data, existed, err
}

// spelled is a path with the spellings that its keys have in a document.
func spelled(n ast.Node, path []string) []string {
	out := slices.Clone(path)
	for i, name := range out {
		pairs, ok := yamldoc.Pairs(n)
		if !ok {
			break
		}
		n = nil
		for _, kv := range pairs {
			if keyIn(strings.Join(path[:i], "."), kv) == name {
				out[i], n = written(kv), kv.Value
			}
		}
	}
	return out
}

// render turns a key and a typed value into a path and a one-line YAML value.
func render(key, value string) (path []string, flow, problem string) {
	if f := config.Lookup(key); f != nil {
		if key == "agent_id" {
			return nil, "", "agent_id is the name of the directory and cannot be changed"
		}
		scratch := config.Default()
		if problem := f.Parse(&scratch, value); problem != "" {
			return nil, "", key + ": " + problem
		}
		return strings.Split(key, "."), f.Render(&scratch), ""
	}
	name, isChannel := strings.CutPrefix(key, "channels.")
	name, attribute, deep := strings.Cut(name, ".")
	switch {
	case isChannel && !config.IsID(name):
		return nil, "", fmt.Sprintf("%q is not a channel name (lower-case letters, digits, _ and -)", config.Clip(name))
	case isChannel && deep && attribute == "allow_private":
		if value != "true" && value != "false" {
			return nil, "", key + ": must be true or false"
		}
		return []string{"channels", name, attribute}, value, ""
	case isChannel && deep && (attribute == "type" || attribute == "url" || attribute == "secret"):
		if config.IsLine(value) != "" {
			return nil, "", key + ": must be one line of text"
		}
		return []string{"channels", name, attribute}, config.Quote(value), ""
	case key == "outbound", isChannel && !deep:
		cfg, problem := fragment(key, value)
		if problem != "" {
			return nil, "", problem
		}
		if key == "outbound" {
			return []string{"outbound"}, config.FlowOutbound(cfg.Outbound), ""
		}
		return []string{"channels", name}, config.FlowChannel(cfg.Channels[name]), ""
	case strings.HasPrefix(key, "model."), key == "model", key == "memory_search", strings.HasPrefix(key, "memory_search."), strings.HasPrefix(key+".", config.ByProvider):
		return nil, "", key + " is not set by this command; edit the file by hand"
	case key == "channels":
		return nil, "", "channels are set one by one: channels.NAME with a value such as {type: webhook, url: \"https://...\"}"
	}
	if i := slices.IndexFunc(config.Keys(), func(k string) bool { return strings.HasPrefix(k, key+".") }); i >= 0 {
		return nil, "", fmt.Sprintf("%s is a group of settings; set one of them, such as %s", key, config.Keys()[i])
	}
	return nil, "", unknown(key, false)
}

// fragment reads `key: value` alone and returns the Config it makes.
func fragment(key, value string) (config.Config, string) {
	if strings.ContainsAny(value, "\r\n") {
		return config.Config{}, key + ": must be one line of YAML"
	}
	var problems []Problem
	var cfg config.Config
	text := key + ": " + value + "\n"
	if name, ok := strings.CutPrefix(key, "channels."); ok {
		text = "channels:\n  " + config.Quote(name) + ": " + value + "\n"
	}
	l := layer{file: "value", data: []byte(text), cfg: &cfg, more: &more{}, places: map[string]place{}, problems: &problems}
	if root, ok := l.parse(); ok && root != nil {
		l.settings(root, "")
	}
	if len(problems) > 0 {
		return config.Config{}, problems[0].Text
	}
	return cfg, ""
}
