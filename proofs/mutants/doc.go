// Package mutants proves the tests: what holds the promises up is taken out of the
// source, one thing after another, and each time a test must notice.
//
// A mutant is a change of text, built with `go test -overlay`, so that the tree is never
// touched. Each of its proofs must fail, and for the reason that the guard is there for:
// a mutant whose text is not found, that does not build, or that is noticed by other
// words proves nothing. A mutant of the state machine is in both engines at once, and the
// contract of the engines must notice it in both.
package mutants
