package config

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/sessionkey"
)

// S4-35, X-02: the four modes of dm_scope and the three of routing.default.
func TestDMScope(t *testing.T) {
	for _, c := range []struct {
		dm, routing string
		want        sessionkey.Scope
	}{
		{"main", "per-peer", sessionkey.Main},
		{"per-peer", "per-peer", sessionkey.Peer},
		{"per-channel-peer", "per-agent", sessionkey.ChannelPeer},
		{"per-account-channel-peer", "per-channel", sessionkey.AccountChannelPeer},
		{"", "per-peer", sessionkey.AccountChannelPeer},
		{"", "per-channel", sessionkey.Channel},
		{"", "per-agent", sessionkey.Main},
	} {
		cfg := Default()
		cfg.Session.DMScope, cfg.Routing.Default = c.dm, c.routing
		if got := cfg.DMScope(); got != c.want {
			t.Errorf("dm_scope %q, routing.default %q: %s, want %s", c.dm, c.routing, got, c.want)
		}
	}
}

// S4-35: auto separates the groups of accounts and leaves other sources as they were.
func TestSharesGroups(t *testing.T) {
	for groups, want := range map[string][2]bool{"auto": {false, true}, "same": {true, true}, "per-conversation": {false, false}} {
		c := Default()
		c.Routing.Groups = groups
		if got := [2]bool{c.SharesGroups(true), c.SharesGroups(false)}; got != want {
			t.Errorf("%s: %v, want %v", groups, got, want)
		}
	}
}

func TestResetBefore(t *testing.T) {
	for _, c := range []struct{ zone, mode, at, now, want string }{
		{"UTC", "daily", "04:00", "2026-03-01T04:00:00Z", "2026-03-01T04:00:00Z"},
		{"UTC", "daily", "04:00", "2026-03-01T03:59:59Z", "2026-02-28T04:00:00Z"},
		{"UTC", "both", "00:00", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"Asia/Kolkata", "daily", "04:00", "2026-03-01T00:00:00Z", "2026-02-28T22:30:00Z"},
		{"Pacific/Kiritimati", "daily", "23:59", "2026-03-01T09:58:00Z", "2026-02-28T09:59:00Z"},
		// Clocks go from 02:00 to 03:00 on 2026-03-29: 02:30 does not exist.
		{"Europe/Berlin", "daily", "02:30", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "daily", "02:30", "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z"},
		{"Europe/Berlin", "daily", "04:00", "2026-03-29T10:00:00Z", "2026-03-29T02:00:00Z"},
		{"Europe/Berlin", "daily", "02:30", "2026-03-30T10:00:00Z", "2026-03-30T00:30:00Z"},
		// Clocks go from 03:00 back to 02:00 on 2026-10-25: 02:30 is there twice.
		{"Europe/Berlin", "daily", "02:30", "2026-10-25T00:30:00Z", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "daily", "02:30", "2026-10-25T02:30:00Z", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "daily", "02:30", "2026-10-25T00:29:59Z", "2026-10-24T00:30:00Z"},
		{"Europe/Berlin", "daily", "04:00", "2026-10-25T02:59:59Z", "2026-10-24T02:00:00Z"},
		// A change by half an hour, one at midnight, and a day that does not exist.
		{"Australia/Lord_Howe", "daily", "02:15", "2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z"},
		{"America/Havana", "daily", "00:30", "2026-03-08T05:00:00Z", "2026-03-08T05:00:00Z"},
		{"Pacific/Apia", "daily", "04:00", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, _ := time.Parse(time.RFC3339, c.now)
		want, _ := time.Parse(time.RFC3339, c.want)
		if got := (SessionReset{Mode: c.mode, At: c.at}).Before(now, zone); !got.Equal(want) {
			t.Errorf("%s %s, now %s: %s, want %s", c.zone, c.at, c.now, got.UTC().Format(time.RFC3339), c.want)
		}
	}
	for _, mode := range []string{"off", "idle"} {
		if got := (SessionReset{Mode: mode, At: "04:00"}).Before(time.Now(), time.UTC); !got.IsZero() {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// The boundary never moves backwards, is never in the future and never older than two days,
// at each quarter of an hour of a year.
func TestResetBeforeIsMonotone(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"00:00", "02:00", "02:30", "23:45"} {
			r := SessionReset{Mode: ResetDaily, At: at}
			var last time.Time
			days := 0
			for now := time.Date(2026, 1, 1, 0, 0, 0, 0, zone); now.Year() < 2027; now = now.Add(15 * time.Minute) {
				got := r.Before(now, zone)
				if got.After(now) || got.Before(last) || now.Sub(got) >= 25*time.Hour+time.Minute {
					t.Fatalf("%s %s: %s gives %s after %s", name, at, now, got, last)
				}
				if !got.Equal(last) {
					days++
				}
				last = got
			}
			if days != 365 && days != 366 {
				t.Errorf("%s %s: %d boundaries in a year", name, at, days)
			}
		}
	}
}
