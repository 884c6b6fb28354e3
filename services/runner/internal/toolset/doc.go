// Package toolset makes the tool calls of a model: it defines what a tool is, which tools
// a turn offers, and what happens to one call.
//
//	answer --> Plan: name, class --> intents, journaled with the answer (T4)
//	intent --> Use:  nothing begun, or repeatable --> Run (T5) --> result (T6)
//	                 an effect that may have begun --> in doubt, nothing runs
//
// The tools are packages below this one; the runner lists them ([New]). Each passes
// the suite of package toolsettest.
//
// It promises: a call that cannot be understood, that no offered tool has the name of, or
// whose arguments do not fit the schema of its tool, runs nothing, and its result informs
// the model why; a call with a result in the journal is not made again; a result is JSON of
// valid UTF-8 and at most [MaxResult] bytes; what a call sends to the peer is written in one transaction
// with its result. A tool does not journal, does not count, and does not decide whether
// a call may be repeated: its class does.
package toolset
