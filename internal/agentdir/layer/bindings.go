package layer

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/binding"
)

// SetBindings returns a theclaw.yaml with another list of bindings: comments inside the old
// list go, everything else stays byte for byte. Whether the agents exist is not checked.
// Every error is an [*Error].
func SetBindings(yaml []byte, list []binding.Binding) ([]byte, error) {
	const file = "theclaw.yaml"
	fail := func(text string) ([]byte, error) {
		return nil, &Error{Problems: []Problem{{File: file, Key: "bindings", Text: text}}}
	}
	if err := CheckHome(File{file, yaml}); err != nil {
		return nil, err
	}
	doc, err := yamldoc.ParseUpTo(yaml, yamldoc.MaxHome)
	if err != nil {
		return fail(err.Error())
	}
	lines := BindingLines(list)
	out, err := doc.SetBlock("bindings", lines)
	if errors.Is(err, yamldoc.ErrInPlace) {
		return fail("bindings cannot be changed without touching the lines around it, or the file becomes larger than 1 MiB; edit the file by hand")
	}
	if err != nil {
		return fail(err.Error())
	}
	got, err := ReadHome(File{file, out})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(got.Bindings, list) {
		return fail("the bindings cannot be written so that they are read back; remove control characters from their ids")
	}
	return out, nil
}

// BindingLines are the entries of a list of bindings in YAML, one line each.
func BindingLines(list []binding.Binding) []string {
	lines := make([]string, len(list))
	for i, b := range list {
		m := b.Match
		s := "  - {agent_id: " + config.Quote(b.Agent) + ", match: {channel: " + config.Quote(m.Channel)
		for _, f := range []struct{ key, value string }{{"account_id", m.Account}, {"guild_id", m.Guild}, {"team_id", m.Team}} {
			if f.value != "" {
				s += ", " + f.key + ": " + config.Quote(f.value)
			}
		}
		if m.Peer.ID != "" {
			s += ", peer: {kind: " + config.Quote(m.Peer.Kind) + ", id: " + config.Quote(m.Peer.ID) + "}"
		}
		lines[i] = s + "}}"
	}
	return lines
}

// BindingsJSON5 is a list of bindings as theclaw.json5 has it, for a person to insert.
func BindingsJSON5(list []binding.Binding) string {
	type peer struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
	}
	type match struct {
		Channel string `json:"channel"`
		Account string `json:"account_id,omitempty"`
		Peer    *peer  `json:"peer,omitempty"`
		Guild   string `json:"guild_id,omitempty"`
		Team    string `json:"team_id,omitempty"`
	}
	type entry struct {
		Agent string `json:"agent_id"`
		Match match  `json:"match"`
	}
	out := make([]entry, len(list))
	for i, b := range list {
		m := match{Channel: b.Match.Channel, Account: b.Match.Account, Guild: b.Match.Guild, Team: b.Match.Team}
		if p := b.Match.Peer; p.ID != "" {
			m.Peer = &peer{p.Kind, p.ID}
		}
		out[i] = entry{b.Agent, m}
	}
	text, _ := json.Marshal(out) // strings: it cannot fail
	return "bindings: " + string(text)
}
