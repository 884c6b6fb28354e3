// Package journal maps the tables of a thread to the rows of package machine: turn, step
// and delivery of a conversation thread, fate, route and outbox of an inbox.
//
// Each of its steps queues in Load the rows that a transition needs, and in Decide what
// the transition changed: two trips. A claim that is not the first takes one more, for
// what the earlier ones left, and a search for the next delivery two more for every
// sixteen events that it finds dead. Every decision on a state is in machine, none here.
//
// A thread's row is locked from before the reads until the commit, so they stay true.
// Each statement finds its rows by an index of the thread, so that no cost grows with it.
// The transaction of package unit checks the fence.
package journal
