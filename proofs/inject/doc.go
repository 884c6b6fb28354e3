// Package inject proves S8: an id that has a meaning to a shell, a path, a
// database, a template or a terminal is treated as an id or refused. Hostile texts, the
// same in each run, go through every text of every method of the descriptors, through
// arguments and standard input of agentctl and thread, and through messages with such a
// sender, conversation and return address. Then the effects are checked from outside:
// nothing around the home has changed, no command within a text ran, no file of the home
// has a name that leads elsewhere, no answer contained a file that it should not, no error
// came from a database or from an unexpected place, and the services work and the home is
// intact.
//
// The proof first shows that the texts are effective: a shell that gets them runs them. It
// does not cover texts within texts, such as a model's answer.
package inject
