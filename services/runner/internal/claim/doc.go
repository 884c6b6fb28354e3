// Package claim does the work of agents under their leases: the loop over leases is
// package worker's, a claim is what runs under one of them.
//
//	grant --> claim: batch --idle, yield, close--> turns under way finish --> release
//	            |      |
//	            |      +-- others wait, and it is idle or had 32 events or 60 s --> the same
//	            |      +-- lease lost --> everything stops at once
//	            +-- 3 panics --> quarantine, with the lease kept
//
// It promises: an agent whose work panicked three times in a minute is left alone
// for a while; who joins a batch that ends joins the next one; work that is no event
// runs in the claim that is there, and a drain waits for it as for a turn.
//
// It does not decide what is due, and does not know what a turn does.
package claim
