// Package window fits the prompt of a turn to its model: it makes the request of each
// round from the claim, has the conversation digested when that is due, and makes the
// prompt smaller when the provider refuses its length.
//
//	         Due           Request            refused
//	round --------> digest --------> model ----------> Squeeze: digest, most recent only
//	         (once in a turn)          ^                  |      then half of that
//	                                   +------------------+      then the refusal stands
//
// It promises: at most one digest in a turn, whatever fails; a request after a
// refusal is smaller than the refused one; the same claim gives the same requests,
// since they are made of nothing but the claim and its digests.
//
// It calls the model for digests only, and commits nothing itself.
package window
