package fault

import "sync/atomic"

var hook atomic.Pointer[func(label string)]

// Point marks an instant at which a crash must be survived. In production no
// hook is set and it costs one atomic load. A label is one of [Labels].
func Point(label string) {
	if f := hook.Load(); f != nil {
		(*f)(label)
	}
}

// SetPoint sets the hook for the whole process; nil takes it away. It is for
// tests and for the crash drill only. The hook runs on the caller's goroutine
// and may block or end the process.
func SetPoint(f func(label string)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// Steps are the steps of a message (T) and of a delivery (D) with a failpoint
// on both sides.
var Steps = []string{
	"T0", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9",
	"D1", "D2", "D3", "D4",
}

// optional are the failpoints that only some messages meet: others that join their
// turn (on both sides of the transaction), a digest of the memory (on both sides
// of the model, of the transaction, and behind the file), and a claim that begins an
// epoch of its conversation.
var optional = []string{
	"steer.before", "steer.after",
	"compaction.before", "compaction.after", "compaction.commit", "compaction.committed", "compaction.written",
	"E1.after",
}

// Channel are the failpoints of a message on its way from a platform: received (G1), a file of it
// stored (G2), taken in (G3), acknowledged (G4), the place in the platform's stream stored (G5), a
// notice sent (N1), the cut of a conversation recorded (C1), and, on the way back, a block of an answer
// journaled before the answer is complete (B1). No message meets all of them.
var Channel = []string{"G1", "G2", "G3", "G4", "G5", "N1", "C1", "B1"}

// Labels lists every failpoint. The crash drill fails if one of them is never hit.
func Labels() []string { return append(StepLabels(), optional...) }

// StepLabels are those that every message and its delivery can meet: each of [Steps]
// with .before and .after.
func StepLabels() []string {
	labels := make([]string, 0, 2*len(Steps)+len(optional))
	for _, s := range Steps {
		labels = append(labels, s+".before", s+".after")
	}
	return labels
}
