// Package db opens one events.db, orders its commits, and keeps its hash chain and the
// tombstones of its erased events.
//
// One goroutine at a time has the one connection. An operation that finds it free runs
// in its caller's goroutine, which saves waking another one up and being woken. Those
// that come meanwhile wait in a queue, and a goroutine runs all that wait in one
// transaction, each in a savepoint of its own, so that a failing one does not affect the
// others, until none waits:
//
//	Do ---+
//	Do ---+--> queue --> BEGIN IMMEDIATE  op op op  COMMIT --> answers --> mirror
//	View -+                 (fsync if any op asked for it)
//
// There is no linger timer: a lone operation commits at once, and a crowd pays
// for one fsync. A durable operation commits with synchronous=FULL, the others
// with NORMAL; in WAL mode a later FULL commit takes the earlier ones with it.
//
// Every appended event is chained: hash = sha256(previous hash, columns). Events
// that another program wrote are chained by our next append, and before a batch is
// opened on them. The tail of the chain is verified at open.
//
// A database that answers an I/O or corruption error, or whose file has lost its
// name, is not used again: the error is sticky, Broken reports it, and the owner
// decides about re-opening. A full disk and another program's lock pass: the
// transaction is undone as a whole and the next one may succeed.
//
// A thread has one owner, or none. Whoever is not it opens the thread as a guest:
// our tables are neither made nor read, so that a look at an inbox of another
// agent does not take it over, and events are not chained, so that any number of
// guests and foreign programs may write at the same time as the owner, whose next append
// chains what they wrote.
//
// The package knows no fences, turns or agents.
package db
