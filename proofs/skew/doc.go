// Package skew proves that builds of two revisions work together: a registry of one with
// the runner and the deliverer of the other, each a process of its own user, over TCP with
// mTLS. Runners and deliverers call only registries, so these two pairs are all there are.
package skew
