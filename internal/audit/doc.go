// Package audit writes and verifies the audit log of a home: which calls were allowed and
// which were refused, which tools ran and what was sent, each entry chained to the
// previous one by its hash.
//
// It promises:
//   - Entries are only ever appended. One that [Log.Append] must sync is on disk when it
//     returns; any other survives the death of the process at once and a power cut after
//     a second.
//   - [Verify] names the first entry that was changed, removed, inserted or moved, at
//     the end too: the newest entry is also noted in the file `head`.
//   - A line is one JSON object, and no known secret is in it.
//
// It does not stop somebody who may write the files and computes the complete chain
// again; against that, keep the hash that `audit verify` prints somewhere else, and
// pass it with --head. It deletes nothing, however old.
//
// The directory:
//
//	000001.jsonl, 000002.jsonl ...   entries; a file ends at 16 MiB
//	head                             number and hash of the newest entry that is on disk
//
// The hash of an entry is sha256 over the previous hash and its own line up to
// the hash.
package audit
