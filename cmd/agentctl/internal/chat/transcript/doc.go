// Package transcript renders the contents of a conversation screen: messages, the
// agent's thoughts and its tool calls, in chronological order, folded and laid out in
// the lines of a terminal.
//
//	You, Note, Problem, Reply          complete entries
//	Think, Say, Start, Update, End     what a run does, while it does it
//	Again                              a run continues after a restart: what was
//	                                   incomplete is sent once more, and its text stays
//	                                   until it differs
//	Finish                             its reply is final, whatever came before
//
// Thoughts and tools are folded to one line until they are opened, one by one or all
// together.
//
// It promises that no content can change the terminal (package screen); that a
// rendering costs the lines of the screen and not those of the conversation; and that
// it keeps at most [MaxEntries] entries, the newest.
//
// It knows no service, no key and no clock except the times it is given.
package transcript
