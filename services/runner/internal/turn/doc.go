// Package turn works on one inbox event, from the claim to its fate, through a crash
// at any instant.
//
//	        BeginTurn                                 FinishTurn
//	event ------------> GO --> round i --------------------------> REPLIED, SILENT
//	          |  |  |           |    ^                             DEAD, ABORTED
//	          |  |  |     model:i    | tool:i:1 .. tool:i:n
//	          |  |  |           v    |
//	          |  |  |       RecordStep (answer and all intents, one call)
//	          |  |  +--> WAIT: its next try has a time, wait and begin again
//	          |  +-----> ALONE: wait until nothing else runs, begin again
//	          +--------> FINISHED, EXHAUSTED: nothing to do
//
// A step whose result is in the journal is not done again: a model answer is
// replayed (T3), a finished tool is not run (T6). A tool that was begun and has
// no result runs again if that is harmless; otherwise it becomes in doubt, and
// the model is asked to check before it repeats. Tools of one answer run in their
// order; only reads next to each other run together. Any other begins when every
// result before it is journaled, so at most the first one without a result can have
// begun.
//
// What is said in files of the messages is made into text before the first round, where the
// settings say by what (transcribe:i). The text is an event of the conversation, written with
// its step, which this turn and later ones read. A file that cannot be made into text fails no
// turn.
//
// Messages that are merged into a turn are a row of the journal before the call that
// sees them.
//
//	model try failed:  record it --> wait --> try again    (counted tries: max_attempts,
//	                      |                                 outages: retry_max_age)
//	                      +--> no use, or used up: DEAD
//
// A call that waits for a person gives back the slot and stops the time of the turn. When the
// batch is to end meanwhile, the turn is given back as it is; the next holder makes the same
// call, which finds the same question. That a wait begins is journaled as progress: however
// often the process dies then, the message is not suspected.
//
// A digest of the conversation that is due follows the turn: its place is reserved before
// the end of the turn is visible, it begins after that, and no reply waits for it.
//
// It promises: nothing is begun and nothing written once the lease is not
// trusted; a panic in here is a failed try of this event, not the end of the
// process; a turn that is stopped by a drain or a lost lease is left exactly as
// the journal has it, and the next holder goes on from there.
//
// It does not hold the lease, does not order events and does not deliver.
package turn
