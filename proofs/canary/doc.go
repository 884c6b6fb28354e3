// Package canary proves S7: a secret stands where its reference points, and
// nowhere else. Secrets are put into every place that can hold one, an agent lives a
// whole life with them, badly, and then every byte of the home and everything that was
// printed is searched for them, as they are and in the forms that programs make of
// them. That the search would find one is shown first.
package canary
