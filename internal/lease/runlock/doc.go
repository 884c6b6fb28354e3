// Package runlock takes the file run.lock of an agent directory, which shows tools that
// know nothing of leases that a process works on the agent.
//
// It decides nothing among our own processes; package lease does. Other tools check only
// whether the file exists. Therefore it exists exactly as long as the lease, and when one
// of those tools created it, our processes do not work on the agent. The content is a
// decimal pid, and in ours a mark and the path of the file behind it. An OS lock on the
// file, which the kernel releases with the process, makes a file of ours harmless when it
// outlives the process, or when it is copied with its directory while it is held. The path
// makes it harmless when the directory is moved meanwhile: the process holds the agent of
// a place where the file is no more.
//
//	file                             another tool sees   Take
//	missing                          free                creates it
//	there, OS lock held              busy                *HeldError
//	the same, of another place       busy                removes it, creates it
//	there, no OS lock, living pid    busy                *HeldError
//	there, no OS lock, stale         busy                takes it over
//
// A file without an OS lock is stale when one of these holds:
//
//   - it has our mark;
//   - it was written before the machine booted;
//   - its pid is dead, or a zombie, or this process itself;
//   - the process with its pid began after the file was written, so the number
//     was given out again;
//   - it holds no pid and is older than ten seconds: a tool creates the file and
//     then writes it, and may have died in between.
//
// A lock must not outlive its lease in a process that is stopped: take it in
// the process that grants the lease, or treat *HeldError as a foreign tool only
// after the table has reported that none of our processes holds the lease.
//
// It never waits, does not renew, and cannot see a foreign process in another pid
// namespace, which it takes for dead.
package runlock
