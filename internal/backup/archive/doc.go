// Package archive owns what a backup is, entry by entry: its names, its manifest, and
// reading it.
//
// It promises that every entry was compared with the manifest when [Read] ends well,
// that nothing is read that has no place in an agent, and that the work is in
// proportion to the bytes that came. It writes nothing and opens no file.
package archive
