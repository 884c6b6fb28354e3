package agentlog

import "time"

// NewWithLockWait lets a test meet a stuck lock without waiting for it.
func NewWithLockWait(d time.Duration) *Log {
	l := New(nil)
	l.lockWait = d
	return l
}
