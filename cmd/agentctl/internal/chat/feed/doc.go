// Package feed owns what the screen of a conversation asks the services: it
// pushes what was said, waits for what becomes of it, follows the run while it
// happens, watches the conversation and whether the services are there, and
// carries out what the person commands.
//
// Everything it learns is a message to the screen. Pieces of a run come at most
// each 40 ms, whatever the model's speed, joined where they can be.
//
// It promises that a service that goes away ends nothing: what was said is pushed
// under its key until it is in, a run is followed from the last item seen, and the
// conversation is watched from the last event. Every call ends with the context
// it was given.
//
// It draws nothing.
package feed
