//go:build !linux

package agentlog

func renameNew(from, to string) error { return renameAfterLook(from, to) }
