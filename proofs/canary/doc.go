// Package canary proves S7: a secret is stored where its reference points, and nowhere
// else. Secrets are put into every place that can hold one, an agent is used through its
// complete life cycle, with errors, and then every byte of the home and everything that
// was printed is searched for them, as they are and in the forms that programs make of
// them. The proof first shows that the search would find one, and in the end that it finds each in a file
// of the home and in an output that have it.
package canary
