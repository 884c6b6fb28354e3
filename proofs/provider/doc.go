// Package provider proves that whatever a model provider answers, each message gets the
// fate it should have, with the true cause and for no more calls than needed, and that
// other conversations are not held up: a table of malformed answers, from bytes that are
// not UTF-8 to streams without end, against a real agentd.
package provider
