// Package file implements the tools that read, change and search files in the working
// directory of an agent: read, write, edit, apply_patch, grep, find and ls.
//
//	read, grep, find, ls        class read: they change nothing
//	write, edit, apply_patch    class idempotent: a transaction that a repeated call finishes
//
// A path is relative to the working directory, or absolute and inside of it. Every file is
// opened below one [os.Root], so that no path and no link leads out. Only regular files of
// one name are opened, and no open waits: a pipe does not block, a device is not read, and
// a file that has a second name, which may be outside, is refused.
//
// A change is a transaction of one or more files. KEY is 16 hexadecimal digits of the
// SHA-256 of the key of the call.
//
//	.output/.tx-KEY/0, 1, ...   the new contents
//	.output/.tx-KEY/manifest    path, SHA-256 before and after, and mode of each file
//	.output/before-KEY/         the previous contents and the manifest
//
//	plan --> stage --> commit ----------> apply ---------> result in the journal --> Finished
//	         (files,   (manifest becomes  (each file is    (T6)                      (.tx-KEY
//	          synced)   ready, synced)     renamed)                                   is removed)
//
// It promises: a call that fails before commit has changed no file. A call that is made
// again after a crash finishes what was ready: a file with the content after is done, one
// with the content before is replaced, and any other is left as it is and named in the
// result; without ready, no file was changed and the call starts again. Contents are on the
// disk before ready is. A file that the turn has read and another writer has changed since
// is not overwritten; this is remembered in memory, so a restart of the runner forgets it.
// A changed file keeps its mode and, when the runner is root, its owner; edit
// and apply_patch keep its encoding, byte order mark and line endings.
//
// It does not decide which agent has these tools, and it does not restrict what a program
// in the sandbox does to the same files. Previous contents are removed after a week, and so are
// transactions that no call came back to, or after a day where they are not ready, by the next
// change. Where the working directory moves between machines, its snapshots have the transactions,
// so that another machine sees that a change is made, and the next change removes one that is finished.
package file
