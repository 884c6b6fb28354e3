// Package powerloss proves promise P2: what our own code acknowledged survives a power
// loss at any instant, and the work continues from there.
//
// The real engine runs on a simulated disk that forgets or tears what was not synced. The
// disk does not forget directory entries; threads are created on the real one, where
// creation syncs them.
package powerloss
