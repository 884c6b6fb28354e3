package config

import (
	"time"

	"github.com/theclaw/agents/internal/sessionkey"
)

// Modes of a [SessionReset].
const (
	ResetOff   = "off"
	ResetDaily = "daily"
	ResetIdle  = "idle"
	ResetBoth  = "both"
)

// DMScope returns which direct messages share a conversation: session.dm_scope, and where
// that is empty what routing.default means.
func (c *Config) DMScope() sessionkey.Scope {
	if c.Session.DMScope != "" {
		return sessionkey.Scope(c.Session.DMScope)
	}
	return RoutingScope(c.Routing.Default)
}

// RoutingScope is the scope that a value of routing.default means: its per-peer is a peer at
// one account, because that is what the conversations of existing homes are.
func RoutingScope(routing string) sessionkey.Scope {
	switch routing {
	case "per-agent":
		return sessionkey.Main
	case "per-channel":
		return sessionkey.Channel
	}
	return sessionkey.AccountChannelPeer
}

// SharesGroups reports whether the messages of a group are in the conversation of their
// author. account is true for messages of an account of the gateway.
func (c *Config) SharesGroups(account bool) bool {
	switch c.Routing.Groups {
	case "same":
		return true
	case "per-conversation":
		return false
	}
	return !account
}

// Zone returns the time zone of the agent: user_timezone, else that of the host. A name that
// this host does not know means the host's zone, too; package layer refuses it in a file.
func (c *Config) Zone() *time.Location {
	if c.Timezone == "" {
		return time.Local
	}
	zone, err := time.LoadLocation(c.Timezone)
	if err != nil {
		return time.Local
	}
	return zone
}

// Daily reports whether the reset has a time of day.
func (r SessionReset) Daily() bool { return r.Mode == ResetDaily || r.Mode == ResetBoth }

// Idles reports whether the reset has a time without messages.
func (r SessionReset) Idles() bool { return r.Mode == ResetIdle || r.Mode == ResetBoth }

// Before returns the most recent daily boundary that is not after now; the zero time when
// the reset is not daily. Each calendar day of the zone has one boundary: the first instant
// at which its clocks show At or later. A day whose clocks skip At has its boundary when they
// have been put forward, and a day that has At twice the first time.
func (r SessionReset) Before(now time.Time, zone *time.Location) time.Time {
	if !r.Daily() || clock(&r.At) != "" {
		return time.Time{}
	}
	hour, minute := int(r.At[0]-'0')*10+int(r.At[1]-'0'), int(r.At[3]-'0')*10+int(r.At[4]-'0')
	year, month, day := now.In(zone).Date()
	for {
		at := boundary(year, month, day, hour, minute, zone)
		if !at.After(now) {
			return at
		}
		day-- // Date normalizes it
	}
}

// boundary is the first instant of a day at which the clocks of a zone show a time or later.
// time.Date does not promise which of two instants it returns, nor which one for a time that
// the clocks skip.
func boundary(year int, month time.Month, day, hour, minute int, zone *time.Location) time.Time {
	wall := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	offset := func(at time.Time) time.Duration {
		_, seconds := at.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}
	// The clocks change less often than every two days, so at most one change is between.
	before, after := offset(wall.Add(-24*time.Hour)), offset(wall.Add(24*time.Hour))
	early := wall.Add(-max(before, after)).In(zone)
	for _, at := range []time.Time{early, wall.Add(-min(before, after)).In(zone)} {
		_, seconds := at.Zone()
		if at.Add(time.Duration(seconds) * time.Second).Equal(wall) {
			return at
		}
	}
	// The clocks skip the time. With the earlier offset the result is after the change.
	start, _ := wall.Add(-before).In(zone).ZoneBounds()
	return start
}
