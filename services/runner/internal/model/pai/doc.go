// Package pai calls the `pai` program: it is the driver for machines whose models
// are set up there.
//
//	request -> session file, system file, input file      (package session)
//	pai chat --stream --json --session F --system-file S --provider P --model M --input-file U
//	stdout ----> text deltas           stderr, one event a line:
//	                                     tool_call, tool_result -> model.ToolUse
//	                                     complete               -> a round has ended
//	                                     error                  -> the class of the failure
//
// pai runs its own rounds and its own bash, outside of our sandbox. So a call is
// refused unless the agent's sandbox.mode is off, and what runs is reported while
// it runs, for the journal.
//
// It promises: the program and everything it has started are dead when Generate
// returns, and when this process dies; that includes its bash, which is in a
// session of its own (package sandbox, level off). Exactly the arguments above
// are passed, under the names this version has for them. The session file is
// rebuilt from the request, so its earlier content has no effect. A call
// that ended without the end of its last round is an error of class CutStream.
// The failure's class comes from the number its message begins with, never from
// the exit code, which differs between versions. A version is refused only for what its
// complete help text says: a help text that was interrupted is asked for again.
//
// A side call (Place.Aside) is for what a turn needs next to its answer, such as a
// digest: it must have no effect. pai leaves its bash out of the last round, so with
// --max-turns 1 there is none in any; the start event of each round reports how many
// tools there are, and it comes before the model is asked: a program that has any is
// ended then. Its session is a file of its own, which is removed afterwards.
//
// It cannot distinguish a stream that the provider interrupted from a complete answer:
// version 1.0.9 reports both with exit 0 and finishReason stop, with the same events
// and the same session (docs/decisions/008). What can be detected is: a text that
// ends in a blank or inside of a block of code is an error of class CutStream, when
// no tool has run and another try may be made (Place.Spare). It repeats nothing, and
// Error.Tries is how often pai itself has tried. There is no usage: pai reports none
// when it streams.
package pai
