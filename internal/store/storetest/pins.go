package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// Pins tests that an engine keeps the tools of MCP servers. Each call of open must open the same tables again,
// which hold no pin before the first.
func Pins(t *testing.T, open func(t *testing.T) store.Pins) {
	db, ctx := open(t), t.Context()
	at := time.Now().Truncate(time.Millisecond)
	want := func(what, server string, list ...store.Pin) {
		t.Helper()
		got, err := db.Pins(ctx, server)
		ok(t, err)
		equal(t, what, append([]store.Pin{}, got...), append([]store.Pin{}, list...))
	}
	change := func(server string, before int, list ...store.Pin) {
		t.Helper()
		ok(t, db.ChangePins(ctx, server, func(have []store.Pin) ([]store.Pin, error) {
			if len(have) != before {
				t.Errorf("%d pins of %s, want %d", len(have), server, before)
			}
			return list, nil
		}))
	}
	want("before the first", "")
	list := store.Pin{Server: "github", Tool: "list_issues", Reported: `{"a":1}`, ReportedSHA: "1", Approved: `{"a":1}`, ApprovedSHA: "1", Class: "read", By: "owner", At: at}
	create := store.Pin{Server: "github", Tool: "Create \x00", Reported: "{\"b\":\"\x00\u2028\"}", ReportedSHA: "2", Approved: `{}`, ApprovedSHA: "3", DeniedSHA: "2", Class: "effect", By: "a \x00", At: at}
	open1 := store.Pin{Server: "browser", Tool: "open", Reported: `{}`, ReportedSHA: "4", Class: "effect"}
	change("github", 0, list, create)
	change("browser", 0, open1)
	want("by server and tool", "", open1, create, list)
	want("of one server", "github", create, list)
	want("of no server", "git")

	approved, err := db.ApprovedPins(ctx)
	ok(t, err)
	equal(t, "approved", approved, []store.Pin{{Server: "github", Tool: "list_issues", ApprovedSHA: "1"}})

	// An error changes nothing; what is not in the result goes, of this server alone.
	refusal := errors.New("refused")
	is(t, db.ChangePins(ctx, "github", func([]store.Pin) ([]store.Pin, error) { return nil, refusal }), refusal)
	want("after a refusal", "github", create, list)
	gone := list
	gone.Reported, gone.ReportedSHA = "", ""
	change("github", 2, gone)
	want("gone", "", open1, gone)
	if approved, err := db.ApprovedPins(ctx); err != nil || len(approved) != 0 {
		t.Errorf("approved, and not offered: %v %v", approved, err)
	}
	denied := store.Pin{Server: "github", Tool: "denied", DeniedSHA: "6", Class: "read", By: "owner", At: at} // as in a restored home
	change("github", 1, denied, gone)
	if approved, err := db.ApprovedPins(ctx); err != nil || len(approved) != 0 {
		t.Errorf("denied, and not offered: %v %v", approved, err)
	}
	change("github", 2, gone)
	db = open(t)
	want("after a restart", "", open1, gone)

	// Changes at the same time happen one after the other.
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			if err := db.ChangePins(ctx, "many", func(have []store.Pin) ([]store.Pin, error) {
				return append(have, store.Pin{Server: "many", Tool: fmt.Sprint("t", i), Reported: "{}", ReportedSHA: "5", Class: "read"}), nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	many, err := db.Pins(ctx, "many")
	ok(t, err)
	if len(many) != 8 {
		t.Errorf("%d pins after 8 changes", len(many))
	}
	ok(t, db.PrunePins(ctx, []string{"browser", "later"}))
	want("pruned", "", open1)
	ok(t, db.PrunePins(ctx, nil))
	want("all pruned", "")
}
