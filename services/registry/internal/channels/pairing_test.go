package channels

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
)

// What was denied, and a code that was not approved, is forgotten after 7 days; what holds is not.
func TestPrune(t *testing.T) {
	db, err := homedb.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	now := time.Now()
	old, recent := now.Add(-8*24*time.Hour), now.Add(-6*24*time.Hour)
	var list []store.Pairing
	for name, p := range map[string]store.Pairing{
		"approved": {State: store.PairingApproved, At: old}, "blocked": {State: store.PairingBlocked, At: old},
		"denied": {State: store.PairingDenied, At: recent}, "denied long ago": {State: store.PairingDenied, At: old},
		"waits": {State: store.PairingPending, At: now, Expires: now.Add(time.Minute)}, "expired": {State: store.PairingPending, At: recent, Expires: recent.Add(codeLife)},
		"expired long ago": {State: store.PairingPending, At: old, Expires: old.Add(codeLife)},
	} {
		p.Account, p.Peer = "wh", name
		list = append(list, p)
	}
	if err := db.ChangePairings(t.Context(), "", nil, func([]store.Pairing) ([]store.Pairing, error) { return list, nil }); err != nil {
		t.Fatal(err)
	}
	counted := counts{}
	s := New(Deps{Store: db, Meter: counted})
	for range 2 {
		if err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := db.Pairings(t.Context(), "wh")
	var names []string
	for _, p := range kept {
		names = append(names, p.Peer)
	}
	if want := []string{"approved", "blocked", "denied", "expired", "waits"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("kept %q, %v; want %q", names, err, want)
	}
	if want := (counts{store.PairingApproved: 1, store.PairingBlocked: 1, store.PairingDenied: 1, store.PairingPending: 1}); !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
}

type counts map[string]int

func (c counts) SetPairings(state string, n int) { c[state] = n }

// A code has 8 letters of the alphabet and is the same for the same request at one process, and at no other.
func TestCode(t *testing.T) {
	one, two := New(Deps{}), New(Deps{})
	seen := map[string]bool{}
	for i := range 100 {
		p := store.Pairing{Account: "wh", Peer: "bob", CodeKey: string(rune('a' + i)), Expires: time.UnixMilli(1)}
		code := one.code(p)
		if len(code) != codeLength || code != one.code(p) || seen[code] || code == two.code(p) {
			t.Errorf("code %q", code)
		}
		seen[code] = true
	}
	if hashCode("qx4t-7mhd") != hashCode("QX4T7MHD") || hashCode("QX4T7MHD") == hashCode("QX4T7MHE") {
		t.Error("a code is not found as people write it")
	}
}

// Markup does not count, nor does the case of letters; links count by their text.
func TestMentions(t *testing.T) {
	for text, want := range map[string]bool{
		"**Max**, hello": true, "_max_ hello": true, "<b>MAX</b> hello": true, "[max](https://example.com/) hello": true, "<https://example.com/|max> hello": true,
		"hello max": false, "[hello](https://max.example/)": false, "maximal": false, "max_power": false, "": false,
	} {
		if got := mentions(text, []string{`^max\b`}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if mentions("max", nil) || mentions("max", []string{"("}) {
		t.Error("mentioned without a pattern that can be read")
	}
}
