// Package toolset makes the tool calls of a model: it defines what a tool is, which tools
// a turn offers, and what happens to one call.
//
//	answer ---> Intents: name, class --> journaled with the answer (T4)
//	intents --> Use: nothing begun, or repeatable --> Run (T5) --> result (T6)
//	                 an effect that may have begun --> in doubt, nothing runs
//	                 an effect that asks a person, with no approval used --> Run, which asks
//
// The calls of one answer are made in their order. Adjacent calls of class read are a group:
// they run together, at most [Parallel] at once, and their results are journaled in one
// write. A call of another class begins when every result before it is journaled, and runs
// alone. So the first intent without a result is the only one that may be an effect which
// has begun; reads without a result run again.
//
//	read read read  edit  exec  read read
//	[   T5   ]--T6  T5-T6 T5-T6 [ T5 ]--T6
//
// The tools are packages below this one; the runner lists them ([New]). Each passes
// the suite of package toolsettest.
//
// It promises: a call that cannot be understood, whose name no offered tool has, or
// whose arguments do not fit the schema of its tool, runs nothing, and its result informs
// the model why; only the first [MaxCalls] calls of an answer are made; a call with a result
// in the journal is not made again; a result is JSON of valid UTF-8 and at most [MaxResult]
// bytes, and holds at most [ResultChars] of a tool's text, of which the rest is in a file; what a call sends to the
// peer is written in one transaction with its result. A tool does not journal, does not
// count, and does not decide whether a call may be repeated: its class does.
package toolset
