// Package hook calls the programs that the settings name for events, and merges what they decide.
//
//	event --> hooks that match, in order --> each answers --> one decision
//	                                          |
//	                                          +--> fails: open, as if it were not there; closed, a [Failure]
//
// The order is: the higher priority first, then a hook of a general event (command) before one of a
// specific event (command:new), then the place in the settings. Hooks of an event that decides run one
// after another, and each reads what the one before it changed; a cancel ends the event. Hooks of an
// event that only observes run at the same time, and their answers count for nothing.
//
// It promises that an event takes at most [EventLimit], and each hook its own timeout; that an answer
// is one JSON object of at most [MaxJSON] with the fields that its event may change, and that every
// other one is a failure; and that a hook that failed five times in a row is not called for a minute,
// in which a closed one fails at once.
//
// It starts no program and keeps no decision: the caller gives it the function that does the first
// ([Caller.Run]), and records the second before it acts on it.
package hook
