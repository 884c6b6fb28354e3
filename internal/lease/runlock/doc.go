// Package runlock owns the file run.lock of an agent directory: the sign, for
// tools that know nothing of leases, that somebody is at work there.
//
// It decides nothing among our own processes; package lease does. Tools of other
// houses look only whether the file exists, so the file is there exactly as long
// as the lease, and when one of those tools has made it, we keep out of its way.
// The content is a decimal pid, and in ours a mark behind it. An OS lock on the
// file, which the kernel gives up with the process, makes a file of ours harmless
// when it outlives us, or is copied with its directory while we hold it.
//
//	file                             another tool sees   Take
//	missing                          free                makes it
//	there, OS lock held              busy                *HeldError
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
//   - it holds no pid and is older than ten seconds: a tool makes the file and
//     then writes it, and may have died in between.
//
// A lock must not outlive its lease in a process that is stopped: take it in
// the process that judges the lease, or treat *HeldError as a foreign tool only
// after the table has said that nobody of ours holds the lease.
//
// What it does not do: it never waits, it does not renew, and it cannot see a
// foreign process in another pid namespace, which it takes for dead.
package runlock
