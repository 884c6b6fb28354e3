// Package mutants proves the tests: it removes one guard of a promise after another from
// the source, and each time a test must fail.
//
// A mutant is a change of text, built with `go test -overlay`, so that the tree is never
// touched. Each of its proofs must fail, and for the reason that the guard exists for: a
// mutant whose text is not found, that does not build, or that fails with another message
// proves nothing. A mutant of the state machine is in both engines at once, and the
// contract of the engines must detect it in both.
package mutants
