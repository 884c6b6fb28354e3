// Package journal maps the tables of a thread's events.db to the rows of package
// machine: x_turn, x_step, x_delivery and x_session of a conversation thread, x_fate, x_dead,
// x_route, x_outbox, x_origin and x_sessions of an inbox.
//
// It loads the rows that a transition needs and saves those that it changed, and answers
// what people ask of the tables: accounts, lists, sums. What a state leads to is decided
// in machine and nowhere here.
//
// The functions run inside a transaction; where a lease is needed the caller has checked
// the fence. Each finds its rows by a key, so that no cost grows with the thread.
package journal
