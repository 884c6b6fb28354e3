// Package audit owns the audit log of a home: who was let do what, who was
// refused, which tools ran and what was sent, each entry chained to the one before
// by its hash.
//
// It promises:
//   - Entries are only ever appended. One that [Log.Append] was told to keep is on
//     disk when it returns; any other survives the death of the process at once and
//     a power cut after a second.
//   - [Verify] names the first entry that was changed, removed, put in or moved, at
//     the end too: the newest entry is also noted in the file `head`.
//   - A line is one JSON object, and no secret that is known is in it.
//
// It does not stop somebody who may write the files and computes the whole chain
// anew; against that, keep the hash that `audit verify` prints somewhere else, and
// give it back with --head. It deletes nothing, however old.
//
// The directory:
//
//	000001.jsonl, 000002.jsonl ...   entries; a file ends at 16 MiB
//	head                             number and hash of the newest entry that is on disk
//
// The hash of an entry is sha256 over the hash before it and its own line up to
// the hash.
package audit
