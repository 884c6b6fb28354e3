// Package batch works on the inbox of one agent under its lease: it reads the
// inbox, keeps the messages of one conversation in order and works on different
// conversations at the same time.
//
//	OpenBatch --> events in rising id --> lane of their thread --> turn
//	    ^                                 serial in a lane,
//	    |                                 concurrent across lanes
//	    +-- poke, or more to read, and a free part of the window
//
//	           work            poke
//	  begin ---------> busy <--------- idle --- Keep without work ---> end
//	                     |    all done  ^ |
//	                     +--------------+ +--- yield, stop: running turns ---> end
//	                                           finish, waiting ones are put off
//
// Peers that wait for a slot are served round robin (package fairqueue): one peer with
// hundreds of conversations makes another wait for one turn, not for all of them.
//
// It promises: a thread's events are worked on one at a time and in id order, a
// turn that waits for its next try included; a thread that waits or fails holds
// up no other; at most [Window] ids after the first unfinished one are in work;
// there is a goroutine only for a lane that has work, and for a moment after. Before it
// ends idle it reads the inbox once more, so that a push in that moment is not missed.
//
// Events that wait in a lane may be merged into the one in work (queue.mode collect,
// steer, and those beyond queue.cap): those right behind it and of the same speaker, as far
// as the journal takes them. With queue.mode interrupt a message ends the turns of its
// speaker before it. One that has not begun may be withdrawn.
//
// The command stop is a cut: as soon as it is read it ends what its conversation has before it, running or waiting,
// of its sender alone unless that is an owner. What comes after it goes on, however often the batch is read. Its own
// turn follows in its lane, and finds what it ended with its fate. Commands are merged into no turn, and those that
// ask no model take no slot.
//
// A turn that waits for a person keeps its lane and holds no slot. Later messages of its peer
// may be offered to it; one that is the answer becomes a member. When the batch is to end, a
// turn that still waits is put off.
//
// A turn may have background work follow it, one piece for each conversation. It has
// places of its own in the process, so that no turn waits for one; it keeps an idle batch
// from ending, and a batch that is to end does not wait for it: its context ends at once.
//
// It does not renew or release the lease, and does not depend on what a turn does.
package batch
