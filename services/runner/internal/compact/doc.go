// Package compact decides when old messages become a digest, and makes it.
//
//	prompt over at_percent of its budget ----+
//	after_turns messages since the last one -+--> a digest follows the reply
//	the raw window is full of what is in none +
//	a prompt would lack what is in none --------> digest, then the model call
//	the provider says the prompt is too long ---> digest, call again
//	                         and once more -----> half of it, call again
//	                         and once more -----> the error stands
//
// A digest takes the old digest and the messages since, together, and is the new
// one. Two strategies implement one interface: [Summarise] asks a model, in
// stages when it is too much for one call; [Truncate] forgets. Which messages are
// shown raw is decided by package prompt: the newest always are, digested or not.
//
// It promises: what a model answers is taken for a digest only when it can be one
// (not empty, not truncated, not longer than it may be); the number of calls is
// bounded; nothing is tried twice, because the messages are still there and the
// next turn asks again. A failed digest changes nothing, and the turn goes on
// with the newest messages that fit (S0-119).
//
// It reads and writes nothing: package memory does, for each layer.
package compact
