// Package workdir owns what a working directory holds, as data: its files in pieces
// that are named by their hash, so that it can be kept in a store and made again on
// another machine.
//
//	directory --Scan--> Tree --Encode--> manifest (JSON), and pieces by sha256
//	manifest  --Decode--> Tree --Lay, with the pieces--> directory
//
// A Tree has directories, regular files and symbolic links in order of their paths,
// with the permissions of each; what else a directory holds (pipes, sockets, devices)
// and what the ignored patterns name is left out. The same content has the same
// manifest, byte for byte.
//
// It promises that nothing outside of the directory is read or written, whatever a
// manifest or a link in the directory says (os.Root); that a piece is what its hash
// says, on both ways; that Lay, when it is broken off, is finished by the next one; and
// that what is too large is told (TooLarge) and left as it is.
//
// It knows no store and no lease.
package workdir
