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
// for a while; a caller that waits for a batch that ends waits for the next one;
// background work runs in the claim that exists, and a drain waits for it as for a
// turn.
//
// It does not decide what is due, and does not depend on what a turn does.
package claim
