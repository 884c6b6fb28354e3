// Package channel defines outbound delivery: what is sent ([Message]), what a
// channel must do ([Channel]), how a send can end ([Error] and its [Class]),
// which channel a reply takes ([Choose]) and how a configuration defines one
// ([Definition]).
//
// Every send ends in one of these ways, and the caller needs nothing but the
// class to go on:
//
//	nil          sent: commit the receipt (D3)
//	Failed       an attempt is spent; try again after the backoff
//	Unavailable  nothing is spent; the channel's breaker opens
//	Rejected     dead at once, What is the recorded cause (D4)
//	Interrupted  our own side stopped the send; nothing is spent
//
// Promises:
//   - Error.InDoubt says when the message may have left although the send did
//     not succeed (window B), so that the next one can carry the duplicate flag.
//   - What and Fix of an Error are one line of bounded length without control
//     characters and hold no secret of ours. What may quote the cause a gateway
//     stated; a longer answer is quoted in Err only, which is meant for logs.
//
// It does not retry, does not wait, keeps no state between sends and does not
// depend on leases or storage. The two channels without a dependency, console
// and internal, are here; webhook and xgw have their own packages.
package channel
