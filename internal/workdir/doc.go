// Package workdir represents the content of a working directory as data: files in pieces
// that are named by their hash, so that a store can hold it and another machine can
// restore it.
//
//	directory --Scan--> Tree --Encode--> manifest (JSON), and pieces by sha256
//	manifest  --Decode--> Tree --Lay, with the pieces--> directory
//
// A Tree has directories, regular files and symbolic links in order of their paths,
// with the permissions of each. Names are bytes as the file system has them. What else a
// directory holds (pipes, sockets, devices) and what cannot be read is left out and named;
// what the ignored patterns match is left out. The same content has the same manifest,
// byte for byte.
//
// It promises that nothing outside of the directory is read or written, whatever a
// manifest or a link in the directory says (os.Root); that each piece has the hash that
// names it, in both directions; that the next Lay finishes an interrupted one; and
// that what is too large is reported (TooLarge) and left as it is.
//
// It knows no store and no lease.
package workdir
