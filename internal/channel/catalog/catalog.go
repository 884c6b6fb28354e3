// Package catalog builds the channels of one agent's configuration, each once, and
// finds the one that a reply takes.
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

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/channel/xgw"
)

// Deps are the live things the channels need.
type Deps struct {
	Pusher  channel.Pusher
	Resolve webhook.Resolve
	Env     []string // NAME=value, from which xgw gets its allow-listed part
}

// Catalog is immutable; open a new one when the configuration changes.
type Catalog struct {
	settings channel.Settings
	byName   map[string]channel.Channel
}

// Open builds the channels of s. Its error joins every mistake found.
func Open(s channel.Settings, d Deps) (*Catalog, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("check channels: %w", err)
	}
	c := &Catalog{settings: s, byName: map[string]channel.Channel{
		channel.NameConsole:  channel.Console{},
		channel.NameInternal: channel.NewInbox(d.Pusher),
		channel.NameXGW: xgw.New(xgw.Config{
			Path: s.XGW.Path, SessionFlag: s.XGW.SessionFlag, Timeout: s.XGW.Timeout, Env: d.Env,
		}),
	}}
	var errs []error
	for name, def := range s.Channels {
		w, err := webhook.New(webhook.Config{
			Name: name, URL: def.URL, Secret: def.Secret, AllowPrivate: def.AllowPrivate,
		}, d.Resolve)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.byName[name] = w
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
