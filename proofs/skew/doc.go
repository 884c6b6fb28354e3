// Package skew proves that builds of two revisions work together: a registry of one
// with the runner and the deliverer of the other, each a process of a user of its own,
// over TCP with mTLS. Runners and deliverers call registries only, so the two pairs are
// all there are.
package skew
