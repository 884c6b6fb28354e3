// Package inject proves S8: an id that means something to a shell, a path, a
// database, a template or a terminal is an id or is refused. Hostile texts, the
// same in each run, go through every text of every method of the descriptors,
// through arguments and standard input of agentctl and thread, and through messages whose
// sender, conversation and way back they are. Then it is looked for from outside:
// nothing around the home has changed, no command within a text ran, no file of
// the home has a name that leads anywhere, no answer held a file that it should
// not, no error came from a database or from a place that did not expect it, and
// the services work and the home is whole.
//
// That the texts are armed is shown first: a shell that is given them runs them. The
// proof says nothing of texts within texts, such as a model's answer.
package inject
