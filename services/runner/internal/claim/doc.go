// Package claim owns which agents this process works on: it asks the registry
// for agents that have work, keeps their leases while there is some, and gives
// every one of them back.
//
//	AcquireDueLease <--- long poll, one at a time, repeated under its id
//	     | fresh                | held already, or news of it
//	     v                      v
//	  claim: Keep, batch      poke the batch of that token; none: release, and of
//	     |                    news: ask again under the id, to be told the lease
//	     |
//	     +-- idle, yield, stop --> turns under way finish --> release
//	     +-- others wait, and it is idle or had 32 events or 60 s --> the same
//	     +-- lost              --> everything stops at once
//
// It promises: at most one claim of an agent runs here, also when its lease
// changed tokens under it; a call without an answer is repeated with a growing
// wait, never in a busy loop; an agent whose work panicked three times in a
// minute is left alone for a while; when Run returns nothing runs and every
// lease was given back.
//
// It does not decide what is due, and does not know what a turn does.
package claim
