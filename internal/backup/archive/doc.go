// Package archive defines the entries of a backup, its names and its manifest, and reads
// it.
//
// It promises that every entry was compared with the manifest when [Read] succeeds,
// that nothing is read that has no place in an agent, and that the work is in
// proportion to the bytes that came. It writes nothing and opens no file.
package archive
