// Package backup writes agents of a home to a tar while they work, and restores them.
//
//	backup.json                       the format and the agents
//	agents/<id>/inbox/events.db       the inbox first,
//	agents/<id>/threads/.../events.db then its conversations,
//	agents/<id>/IDENTITY.md ...       then texts, memory, sessions, media (, workdir)
//	manifest.json                     sizes, sha256, and the lease tokens, last
//
// Names are bytes as the file system has them: in the tar as PAX records with hdrcharset
// BINARY, in the manifest in base64. What cannot be archived (links, sockets, pipes,
// devices, what cannot be read, a file of more than 1 GiB that consists of holes) is named
// in the manifest with its agent and its path, and the rest goes on. Of a file in a
// workdir its content is kept and whether its owner may execute it; a hard link becomes a
// file of its own. A file that shrinks while it is read is kept as far as it was read.
//
// The order makes the copies consistent. Whatever the copied inbox records as done was
// done before it was copied, so the threads, copied later, hold it; what they hold beyond
// is found done again and skipped. No token in any copy is above the one written last. A
// tar without its manifest is refused.
//
// A restore combines the copies into one agent:
//   - the inbox uses no id that any copy knows, so that no message gets the id of one
//     that was accounted for;
//   - tokens continue above every token that any copy knows, so that no earlier holder
//     is accepted;
//   - a message that was accepted after the inbox was copied and begun before its
//     thread was is aborted: its thread has it, no inbox will bring it again;
//   - media whose file is not in the backup, because nothing referred to them when it was
//     copied, are forgotten; those that were written after the inbox was copied get their row again;
//   - what waits for delivery is due again, under its key and flagged, because nobody
//     can know whether it was sent after the copy.
//
// An agent appears completely or not at all, nothing is changed before everything was
// read and verified, and an agent that is replaced is kept. What happened after the backup
// is not in it: messages that waited then are answered again. Home-wide settings,
// providers and their keys, logs and links are not part of a backup.
//
// Agents of a database are copied into a temporary home, one after the other, and backed
// up there ([Source.Bring]); restored ones are made in such a home and moved into the
// database (package transfer). So the archives are the same.
//
// The package opens copies only, never a database that a registry may have open.
package backup
