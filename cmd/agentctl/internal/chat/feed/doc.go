// Package feed makes the calls of the conversation screen: it pushes messages, waits for
// their outcome, follows a run while it happens, watches the conversation and the health
// of the services, and executes the commands of the user.
//
// Each result is a message to the screen. Pieces of a run arrive at most every 40 ms,
// whatever the speed of the model, joined where possible.
//
// It promises that an unavailable service interrupts nothing: a message is pushed under
// its key until it is accepted, a run is followed from the last item seen, and the
// conversation is watched from the last event. Every call ends with its context.
//
// It draws nothing.
package feed
