// Package channel owns the nouns of outbound delivery: what is sent
// ([Message]), what a way out must do ([Channel]), how a send can end
// ([Error] and its [Class]) and which way a reply takes ([Choose]).
//
// Promises:
//
//   - Every send ends in one of four ways, and the caller needs nothing but the
//     class to go on:
//
//     Send -> nil          sent: commit the receipt (D3)
//     Send -> Failed       an attempt is spent; try again after the backoff
//     Send -> Unavailable  nothing is spent; the channel's breaker opens
//     Send -> Rejected     dead at once, the What is the recorded cause (D4)
//     Send -> Interrupted  we stopped it ourselves; nothing is spent
//
//   - Error.InDoubt says when the message may have left although the send did
//     not succeed (window B), so that the next one can carry the duplicate flag.
//
//   - What and Fix of an Error are one line of bounded length and hold no secret
//     and no byte of a message; only Err, meant for logs, may quote an answer.
//
// It does not retry, does not wait, keeps no state between sends and knows
// neither leases nor storage. The two channels without a dependency, console
// and internal, live here; webhook and xgw have their own packages.
package channel
