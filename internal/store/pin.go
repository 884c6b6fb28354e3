package store

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Pin is a tool of an MCP server: what the server reported last, and what of it the owner has decided. The sums
// are those of the descriptions, in the caller's form.
type Pin struct {
	Server, Tool          string
	Reported, ReportedSHA string // description; empty: the server does not offer it now
	Approved, ApprovedSHA string // empty: it was never approved; the sum alone: approved before the home was restored
	DeniedSHA             string // of the description that was denied; empty: none was
	Class                 string
	By                    string // who decided last
	At                    time.Time
}

// PinState is what follows from a Pin.
type PinState int

// The states, in the order in which they are decided.
const (
	PinGone     PinState = iota + 1 // approved, and not offered now
	PinApproved                     // as it is reported
	PinDenied                       // as it is reported, or before the home was restored and not reported since
	PinChanged                      // approved in another form
	PinNew                          // never approved
)

// State returns the state of a pin.
func (p Pin) State() PinState {
	switch {
	case p.ReportedSHA == "" && p.ApprovedSHA != "":
		return PinGone
	case p.ReportedSHA == "":
		return PinDenied
	case p.ApprovedSHA == p.ReportedSHA:
		return PinApproved
	case p.DeniedSHA == p.ReportedSHA:
		return PinDenied
	case p.ApprovedSHA != "":
		return PinChanged
	}
	return PinNew
}

// Pins keeps the tools of MCP servers. What is changed is on disk when the call returns.
type Pins interface {
	// Pins returns the pins of a server, or of all servers when it is empty, by server and tool.
	Pins(ctx context.Context, server string) ([]Pin, error)
	// ApprovedPins returns the pins in state approved by server and tool, with the name of the tool and
	// ApprovedSHA alone.
	ApprovedPins(ctx context.Context) ([]Pin, error)
	// ChangePins replaces the pins of a server by what next makes of them. No other call changes them
	// meanwhile; those that stay the same are not written. An error of next is returned, and nothing is
	// changed. next must not use the store.
	ChangePins(ctx context.Context, server string, next func([]Pin) ([]Pin, error)) error
	// PrunePins removes the pins of all servers but these.
	PrunePins(ctx context.Context, servers []string) error
}

// PinChanges compares the pins of a server before and after a change: which are to be written, and the tools
// of those that are to be removed.
func PinChanges(before, after []Pin) (put []Pin, gone []string) {
	was := map[string]Pin{}
	for _, p := range before {
		was[p.Tool] = p
	}
	for _, p := range after {
		old, there := was[p.Tool]
		delete(was, p.Tool)
		if p.At = FromMillis(Millis(p.At)); !there || !old.At.Equal(p.At) || old.withoutAt() != p.withoutAt() {
			put = append(put, p)
		}
	}
	for tool := range was {
		gone = append(gone, tool)
	}
	slices.Sort(gone)
	return put, gone
}

func (p Pin) withoutAt() Pin {
	p.At = time.Time{}
	return p
}

// ComparePins is the order of pins.
func ComparePins(a, b Pin) int {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
}
