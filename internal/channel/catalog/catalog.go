// Package catalog lists the types of channels, checks the entries of a configuration that
// define channels, builds the channels of one agent, each once, and finds the one that a
// reply takes.
//
// Settings that name an unknown channel are refused when the catalog is opened, not when
// a message meets them. The package does not send, and holds nothing that has to be
// closed.
//
// It is a package of its own because it imports every channel: a new one is registered
// here, in one line.
package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/discord"
	"github.com/theclaw/agents/internal/channel/plugin"
	"github.com/theclaw/agents/internal/channel/slack"
	"github.com/theclaw/agents/internal/channel/telegram"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/channel/xgw"
)

// Types are the types that entries of `channels:` can have, each in one line.
var Types = []channel.Type{
	webhook.Type,
	discord.Type,
	telegram.Type,
	slack.Type,
	plugin.Type,
}

// Check returns what of an entry of `channels:` is wrong (its attribute; empty for the
// name), and why. Open refuses the same and nothing else.
func Check(name string, d channel.Definition) (attribute, problem string) {
	if channel.IsBuiltin(name) {
		return "", fmt.Sprintf("%s is built in and needs no entry: remove this one, or give it another name", name)
	}
	if attribute, problem := d.CheckSecrets(); problem != "" {
		return attribute, problem
	}
	if t, ok := Find(d.Type); ok {
		return t.Check(d)
	}
	if channel.IsBuiltin(d.Type) {
		return "type", fmt.Sprintf("%s is built in and needs no entry: remove this one, and write `via: %s` in outbound", d.Type, d.Type)
	}
	return "type", fmt.Sprintf("type %q is not one of %s", channel.Clean(d.Type, 57), strings.Join(names(), ", "))
}

// CheckAccount returns what of an account of the home is wrong, as [Check] does for the entries of
// an agent. A type that this build does not know is no mistake: the account does not start.
func CheckAccount(name string, d channel.Definition) (attribute, problem string) {
	t, ok := Find(d.Type)
	for _, a := range []struct {
		key string
		set bool
	}{{"url", d.URL != ""}, {"allow_private", d.AllowPrivate}, {"secret", d.Secret != ""}, {"token", d.Token != ""}, {"app_token", d.AppToken != ""}, {"api", d.API != ""}, {"plugin", d.Plugin != ""}, {"reply_to", d.ReplyTo != ""}} {
		if a.set && ok && !slices.Contains(t.Keys, a.key) {
			return a.key, fmt.Sprintf("an account of type %s has no %s", d.Type, a.key)
		}
	}
	if problem := d.CheckReplyTo(); problem != "" {
		return "reply_to", problem
	}
	if !ok || t.ReceivesOnly != nil && t.ReceivesOnly(d) {
		return d.CheckSecrets()
	}
	return Check(name, d)
}

// Sends reports whether an account of the home can send: its type is known, and its entry says
// where to.
func Sends(d channel.Definition) bool {
	t, ok := Find(d.Type)
	return ok && (t.ReceivesOnly == nil || !t.ReceivesOnly(d))
}

// Find returns the type of a name.
func Find(name string) (channel.Type, bool) {
	i := slices.IndexFunc(Types, func(t channel.Type) bool { return t.Name == name })
	if i < 0 {
		return channel.Type{}, false
	}
	return Types[i], true
}

func names() (out []string) {
	for _, t := range Types {
		out = append(out, t.Name)
	}
	return out
}

// Catalog is immutable; open a new one when the configuration changes.
type Catalog struct {
	settings channel.Settings
	byName   map[string]channel.Channel
}

// Open builds the channels of s. Its error joins every mistake found.
func Open(s channel.Settings, d channel.Deps) (*Catalog, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("check channels: %w", err)
	}
	c := &Catalog{settings: s, byName: map[string]channel.Channel{
		channel.NameConsole:  channel.Console{},
		channel.NameInternal: channel.NewInbox(d.Pusher),
		channel.NameXGW: xgw.New(xgw.Config{
			Path: s.XGW.Path, SessionFlag: s.XGW.SessionFlag, Timeout: s.XGW.Timeout, Env: d.Env, Run: d.Run,
		}),
	}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Channels)) {
		def := s.Channels[name]
		if _, problem := Check(name, def); problem != "" {
			errs = append(errs, fmt.Errorf("channels.%s: %s", channel.Clean(name, 64), problem))
			continue
		}
		t, _ := Find(def.Type)
		opened, err := t.Open(name, def, d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.byName[name] = opened
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("open channels: %w", err)
	}
	return c, nil
}

// For returns the channel of a reply in threadID, or false when the
// configuration wants no delivery ([channel.FateByConfiguration]).
func (c *Catalog) For(threadID, source string, rc channel.ReplyContext) (channel.Channel, bool) {
	via, ok := channel.Choose(c.settings, threadID, source, rc)
	if !ok {
		return nil, false
	}
	return c.byName[via], true
}
