package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// Cursors tests that an engine keeps cursors. Each call of open must open the same tables again, which hold no
// cursor before the first.
func Cursors(t *testing.T, open func(t *testing.T) store.Cursors) {
	db, ctx := open(t), t.Context()
	at := time.Now().Truncate(time.Millisecond)
	want := func(account, identity, name, value string) {
		t.Helper()
		got, err := db.Cursor(ctx, account, identity, name)
		ok(t, err)
		equal(t, account+"/"+identity+"/"+name, got, value)
	}
	want("tg", "1", "updates", "")
	odd := store.Cursor{Account: "tg", Identity: "bot \x00", Name: "☺\x00", Value: "{\"seq\":\"\x00\u2028\"}", At: at}
	first := store.Cursor{Account: "tg", Identity: "1", Name: "updates", Value: "41", At: at}
	ok(t, db.PutCursor(ctx, odd, nil))
	ok(t, db.PutCursor(ctx, first, nil))
	want("tg", "1", "updates", "41")
	want("tg", "2", "updates", "") // another bot begins without one
	want("other", "1", "updates", "")
	first.Value = "42"
	ok(t, db.PutCursor(ctx, first, nil))
	db = open(t)
	want("tg", "1", "updates", "42")
	want(odd.Account, odd.Identity, odd.Name, odd.Value)
	list, err := db.Cursors(ctx)
	ok(t, err)
	equal(t, "cursors", list, []store.Cursor{first, odd})
}

// Readers tests that under the lease of an account a cursor and the pairings are written only while it is current.
// Each call of grant begins another term of the lease, which ends the one before.
func Readers(t *testing.T, db store.Channels, grant func() store.Fence) {
	ctx, late := t.Context(), grant()
	put := func(value string, reader store.Fence) error {
		return db.PutCursor(ctx, store.Cursor{Account: "late", Identity: "1", Name: "updates", Value: value, At: time.Now()}, &reader)
	}
	pair := func(peer string, reader store.Fence) error {
		return db.ChangePairings(ctx, "late", &reader, func(have []store.Pairing) ([]store.Pairing, error) {
			return append(have, store.Pairing{Account: "late", Peer: peer, Type: "telegram", State: store.PairingPending, At: time.Now()}), nil
		})
	}
	ok(t, put("1", late))
	ok(t, pair("ann", late))
	next := grant()
	is(t, put("2", late), store.ErrLeaseLost)
	is(t, pair("bob", late), store.ErrLeaseLost)
	value, err := db.Cursor(ctx, "late", "1", "updates")
	ok(t, err)
	equal(t, "cursor", value, "1")
	list, err := db.Pairings(ctx, "late")
	ok(t, err)
	equal(t, "pairings", len(list), 1)
	ok(t, put("3", next))
	ok(t, pair("carol", next))
	ok(t, db.ChangePairings(ctx, "late", nil, func([]store.Pairing) ([]store.Pairing, error) { return nil, nil }))
}

// Pairings tests that an engine keeps pairings. Each call of open must open the same tables again, which hold no
// pairing before the first.
func Pairings(t *testing.T, open func(t *testing.T) store.Pairings) {
	db, ctx := open(t), t.Context()
	at := time.Now().Truncate(time.Millisecond)
	want := func(what, account string, list ...store.Pairing) {
		t.Helper()
		got, err := db.Pairings(ctx, account)
		ok(t, err)
		equal(t, what, append([]store.Pairing{}, got...), append([]store.Pairing{}, list...))
	}
	change := func(account string, before int, list ...store.Pairing) {
		t.Helper()
		ok(t, db.ChangePairings(ctx, account, nil, func(have []store.Pairing) ([]store.Pairing, error) {
			if len(have) != before {
				t.Errorf("%d pairings of %q, want %d", len(have), account, before)
			}
			return list, nil
		}))
	}
	want("before the first", "")
	bob := store.Pairing{
		Account: "tg", Peer: "1207", Type: "telegram", Name: "Bob", State: store.PairingPending, CodeHash: "h", CodeKey: "telegram:1:1207:1", Expires: at.Add(time.Hour), At: at, Messages: 1,
	}
	odd := store.Pairing{Account: "tg", Peer: "p \x00\u2028", Type: "telegram", Name: "\x00", State: store.PairingApproved, Owner: true, CodeKey: "k\x00", By: "telegram:\x00", At: at}
	other := store.Pairing{Account: "wh", Peer: "1207", Type: "webhook", State: store.PairingBlocked, At: at}
	change("tg", 0, bob, odd)
	change("wh", 0, other)
	want("of all accounts", "", bob, odd, other)
	want("of one account", "tg", bob, odd)
	want("of no account", "t")
	for _, p := range []store.Pairing{bob, odd, other} {
		got, there, err := db.Pairing(ctx, p.Account, p.Peer)
		ok(t, err)
		equal(t, "one pairing", got, p)
		equal(t, "is there", there, true)
	}
	if _, there, err := db.Pairing(ctx, "wh", "1208"); err != nil || there {
		t.Errorf("a person who is not known: %v, %v", there, err)
	}

	owners, err := db.PairedOwners(ctx)
	ok(t, err)
	equal(t, "owners", owners, []string{"telegram:p \x00\u2028"})

	// An error changes nothing; what is not in the result goes.
	refusal := errors.New("refused")
	is(t, db.ChangePairings(ctx, "tg", nil, func([]store.Pairing) ([]store.Pairing, error) { return nil, refusal }), refusal)
	want("after a refusal", "tg", bob, odd)
	bob.State, bob.By, bob.At, bob.Messages = store.PairingApproved, "owner", at.Add(time.Minute), 2
	ok(t, db.ChangePairings(ctx, "", nil, func(have []store.Pairing) ([]store.Pairing, error) {
		have[0] = bob // in place
		return append(have[:1], have[2:]...), nil
	}))
	db = open(t)
	want("after a restart", "", bob, other)

	// A notice waits of one who was approved; the key of a code is any text.
	waiting := store.Pairing{Account: "a", Peer: "☺\x00", Type: "telegram", State: store.PairingApproved, CodeKey: store.NoticeWaiting, At: at}
	sent, pending := waiting, waiting
	sent.Peer, sent.CodeKey, pending.Peer, pending.State = "sent", store.NoticeSent, "pending", store.PairingPending
	later := waiting
	later.Account = "b"
	change("a", 0, sent, pending, waiting)
	change("b", 0, later)
	list, err := db.WaitingNotices(ctx)
	ok(t, err)
	equal(t, "notices that wait", list, []store.Pairing{waiting, later})

	// Changes at the same time happen one after the other.
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			if err := db.ChangePairings(ctx, "many", nil, func(have []store.Pairing) ([]store.Pairing, error) {
				if len(have) == 3 {
					return have, nil
				}
				return append(have, store.Pairing{Account: "many", Peer: fmt.Sprint("p", i), Type: "telegram", State: store.PairingPending, At: at}), nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	many, err := db.Pairings(ctx, "many")
	ok(t, err)
	if len(many) != 3 {
		t.Errorf("%d pairings after 8 changes that leave 3", len(many))
	}
}
