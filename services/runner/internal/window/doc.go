// Package window fits the prompt of a turn to its model: it makes the request of each
// round from the claim, says when a digest of the conversation is due after the turn, has
// it digested in the turn where the prompt would lack messages, and makes the prompt
// smaller when the provider refuses its length.
//
//	         Fit                 Request            refused
//	round --------> all fits ------------> model ----------> Squeeze: digest, most recent only
//	          \--> messages lack: digest --/  |  ^              |      then half of that
//	               (once in a turn)           |  +--------------+      then the refusal stands
//	                                          v
//	                                reply, then Due --> Later: the digest that follows
//
// A digest that follows an earlier turn may still be made when a turn needs it: the turn
// waits for that one, and takes it into its claim.
//
// It promises: at most one digest in a turn, whatever fails; a request after a
// refusal is smaller than the refused one; the same claim gives the same requests,
// since they are made of nothing but the claim and the digests since.
//
// It calls the model for digests only, and commits nothing itself.
package window
