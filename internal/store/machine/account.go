package machine

import "github.com/theclaw/agents/internal/store"

// Account completes the account of an inbox event, of which out says what its inbox
// knows, with its turn, the steps of the turn and the delivery of its reply; nil: none.
func Account(out *store.Turn, r Turn, steps []store.Step, d *store.Delivery) {
	out.CrashAttempts, out.ErrorAttempts, out.Leader = r.CrashAttempts, r.ErrorAttempts, r.Leader
	out.InboundID, out.ReplyID, out.ErrorEventID = r.InboundID, r.ReplyID, r.ErrorID
	out.ClaimedAt = store.FromMillis(r.ClaimedAt)
	if out.Fate == store.FateNone || r.State == store.TurnDone { // what the inbox says is settled
		out.State, out.Fate, out.Error = r.State, r.Fate, r.Error
	}
	if r.FinishedAt > 0 {
		out.FinishedAt = store.FromMillis(r.FinishedAt)
	}
	if out.State == store.TurnWaiting {
		out.NextAt = store.FromMillis(r.NotBefore)
	}
	out.Steps, out.Delivery, out.Attempts = steps, d, Attempts(r.Attempts)
	for _, s := range steps {
		out.Usage.Add(s.Usage)
	}
}

// SettleAccount completes the account of an event that has its fate in the inbox.
func SettleAccount(out *store.Turn, f Fate, resolved string) {
	out.State, out.Fate, out.FinishedAt, out.Settled = store.TurnDone, f.Fate, store.FromMillis(f.At), true
	out.Thread, out.Error, out.Resolved = f.Thread, f.Error, resolved
}
