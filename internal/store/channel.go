package store

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Cursor is where a receiver of a channel account continues.
type Cursor struct {
	Account, Identity string // Identity is what the account is at its platform, such as the id of a bot
	Name, Value       string
	At                time.Time
}

// Cursors keeps cursors. What is put is on disk when the call returns.
type Cursors interface {
	// Cursor returns the value of a cursor; empty when there is none.
	Cursor(ctx context.Context, account, identity, name string) (string, error)
	// PutCursor replaces a cursor while the lease of its account is current, else ErrLeaseLost; reader nil: none
	// is needed.
	PutCursor(ctx context.Context, c Cursor, reader *Fence) error
	// Cursors returns all, by account, identity and name.
	Cursors(ctx context.Context) ([]Cursor, error)
}

// The states of a pairing.
const (
	PairingPending  = "pending"
	PairingApproved = "approved"
	PairingDenied   = "denied"
	PairingBlocked  = "blocked"
)

// PairingsKept is how long a denied pairing and one whose code expired are kept.
const PairingsKept = 7 * 24 * time.Hour

// Pairing is a person who asked to write to a channel account, and what was decided.
type Pairing struct {
	Account, Peer string
	Type          string // of the account when the person asked
	Name          string // as the person gave it
	State         string
	Owner         bool
	CodeHash      string
	CodeKey       string    // the key of the message for which the code was made; once approved see Notice
	Expires       time.Time // of the code; zero: there was none
	By            string    // who decided; empty: not decided
	At            time.Time // when the person asked, or when it was decided
	Messages      int64     // that were not stored since the person asked
}

// What has become of the notice of one who was approved.
const (
	NoticeWaiting = "waiting"
	NoticeSent    = "sent"
	NoticeFailed  = "failed" // the platform refused it
)

// Notice is what has become of the notice that the person was approved; empty: there is none. It takes the place of
// the key of a code, which has no more use then.
func (p Pairing) Notice() string {
	if p.State != PairingApproved {
		return ""
	}
	return p.CodeKey
}

// Ended reports whether nothing follows from a pairing any more: it was denied, or its code expired.
func (p Pairing) Ended(now time.Time) bool {
	return p.State == PairingDenied || p.State == PairingPending && !p.Expires.After(now)
}

// OwnerName is the person as an owner of the home, as type:peer; empty: the person is none.
func (p Pairing) OwnerName() string {
	if p.State != PairingApproved || !p.Owner {
		return ""
	}
	return p.Type + ":" + p.Peer
}

// Pairings keeps pairings. What is changed is on disk when the call returns.
type Pairings interface {
	// Pairing returns that of a person with an account; false when there is none.
	Pairing(ctx context.Context, account, peer string) (Pairing, bool, error)
	// Pairings returns those of an account, or of all accounts when it is empty, by account and peer.
	Pairings(ctx context.Context, account string) ([]Pairing, error)
	// WaitingNotices returns those whose notice waits, by account and peer.
	WaitingNotices(ctx context.Context) ([]Pairing, error)
	// PairedOwners returns the people who were made owners of the home, each as type:peer.
	PairedOwners(ctx context.Context) ([]string, error)
	// ChangePairings replaces the pairings of an account, or of all accounts when it is empty, by what next
	// makes of them. No other call changes any meanwhile; those that stay the same are not written. An error of
	// next is returned, and nothing is changed. next must not use the store. reader is as in PutCursor.
	ChangePairings(ctx context.Context, account string, reader *Fence, next func([]Pairing) ([]Pairing, error)) error
}

// Channels keeps what belongs to the accounts of channels.
type Channels interface {
	Cursors
	Pairings
}

// PairingChanges compares pairings before and after a change: which are to be written, and which are to be removed.
func PairingChanges(before, after []Pairing) (put, gone []Pairing) {
	type name struct{ account, peer string }
	was := map[name]Pairing{}
	for _, p := range before {
		was[name{p.Account, p.Peer}] = p
	}
	for _, p := range after {
		old, there := was[name{p.Account, p.Peer}]
		delete(was, name{p.Account, p.Peer})
		p.At, p.Expires = FromMillis(Millis(p.At)), FromMillis(Millis(p.Expires))
		if !there || !old.At.Equal(p.At) || !old.Expires.Equal(p.Expires) || old.withoutTimes() != p.withoutTimes() {
			put = append(put, p)
		}
	}
	for _, p := range was {
		gone = append(gone, p)
	}
	slices.SortFunc(gone, ComparePairings)
	return put, gone
}

func (p Pairing) withoutTimes() Pairing {
	p.At, p.Expires = time.Time{}, time.Time{}
	return p
}

// ComparePairings is the order of pairings.
func ComparePairings(a, b Pairing) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Peer, b.Peer))
}
