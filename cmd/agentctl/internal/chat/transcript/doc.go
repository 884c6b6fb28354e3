// Package transcript owns what the screen of a conversation shows: what was said,
// what the agent thought and which tools it ran, in the order of time, and how
// it is folded and laid out in the lines of a terminal.
//
//	You, Note, Problem, Reply          what is whole at once
//	Think, Say, Start, Update, End     what a run does, while it does it
//	Again                              a run goes on after a restart: what was not
//	                                   whole comes once more
//	Finish                             its reply stands, whatever came before
//
// Thoughts and tools are folded to one line until they are opened, one by one or
// all together.
//
// It promises that nothing in it can change the terminal (package screen); that a
// look costs the lines of the screen and not those of the conversation; and that
// it keeps at most [MaxEntries] entries, the newest.
//
// It knows no service, no key and no clock but the times it is given.
package transcript
