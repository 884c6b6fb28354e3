// Package backup owns how agents leave a home and come into one: a tar that is
// made while they work, and its way back.
//
//	backup.json                       what this is
//	agents/<id>/inbox/events.db       the inbox first,
//	agents/<id>/threads/.../events.db then its conversations,
//	agents/<id>/IDENTITY.md ...       then texts, memory, sessions (, workdir)
//	manifest.json                     sizes, sha256, and the lease tokens, last
//
// The order is the proof. Whatever the copied inbox calls done was done before it
// was copied, so the threads, copied later, hold it; what they hold beyond is
// found done again and skipped. No token in any copy is above the one written
// last. A tar without its manifest is no backup.
//
// A restore makes the copies one whole again (package settle):
//   - the inbox hands out no id that any copy knows, so that no message gets the
//     id of one that was accounted for;
//   - tokens go on above every token that any copy knows, so that no holder of
//     before is accepted;
//   - a message that was accepted after the inbox was copied and begun before its
//     thread was is aborted: its thread has it, no inbox will bring it again;
//   - what waits for delivery is due again, under its key and flagged, for nobody
//     can know whether it was sent after the copy.
//
// It promises that an agent appears whole or not at all, that nothing is changed
// before everything was read and verified, and that an agent which is replaced is
// kept. What happened after the backup is not in it: messages that waited then are
// answered again. Home-wide settings, providers and their keys, logs and links
// are left out.
//
// Agents of a database are laid into a home that is nobody else's, one after the other,
// and backed up there ([Source.Bring]); restored ones are made in such a home and brought
// into the database (package transfer). So the archives are the same.
//
// It opens copies only, never a database that a registry may have open.
package backup
