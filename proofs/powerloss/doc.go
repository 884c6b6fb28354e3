// Package powerloss proves promise P2: what our own code acknowledged
// survives a power cut at any instant, and the work goes on from there.
//
// The real engine runs on a simulated disk that forgets or tears what was not
// synced. The disk does not forget directory entries; threads are made on the
// real one, where the making syncs them.
package powerloss
