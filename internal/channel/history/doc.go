// Package history fetches what was written in the conversations of an account while it had no
// connection to its platform.
//
//	stored message --> Positions --> Intake.Keep
//	after an outage:   Positions --> Gap --> Platform.List --> Intake.Take --> stored
//
// Promises:
//   - A position is behind a message only when that is stored, and everything before it in its
//     conversation: what a start could not fetch or store, the next one fetches again.
//   - The messages of a conversation are taken in their order, each with the key that it has over the
//     connection, so that none is stored twice.
//   - It is bounded: the 200 conversations that were used last, within 7 days, at most 500 messages of
//     each, the newest, and 5,000 in all. A limit that the platform states is waited for.
//
// It does not know conversations in which nothing was stored in the last 7 days. It does not decide
// which messages are answered: an old one may be context only.
package history
