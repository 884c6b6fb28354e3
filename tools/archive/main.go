// Command archive packs the files of a directory into a .tar.gz that the same files give
// byte for byte: sorted by name, owned by root, of one time, links as links.
//
//	go run ./archive -out theclaw-v1.0.0-linux-amd64.tar.gz DIR
//
// The files lie below a directory with the archive's name. gzip and not xz, which makes
// half of it: every system unpacks it without another package.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// suffix is cut off the name of the archive for the directory in it.
const suffix = ".tar.gz"

// made is the time of each entry.
var made = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func main() {
	out := flag.String("out", "", "the archive to write")
	flag.Parse()
	if flag.NArg() != 1 || !strings.HasSuffix(*out, suffix) {
		fmt.Fprintln(os.Stderr, "usage: archive -out NAME"+suffix+" DIR")
		os.Exit(2)
	}
	if err := write(*out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func write(out, dir string) (err error) {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := add(t, filepath.Join(dir, e.Name()), path.Join(strings.TrimSuffix(filepath.Base(out), suffix), e.Name())); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func add(t *tar.Writer, file, name string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: 0o644, ModTime: made, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}
	switch {
	case info.Mode().Type() == os.ModeSymlink:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		return t.WriteHeader(h)
	case !info.Mode().IsRegular():
		return errors.New("it is neither a file nor a link")
	case info.Mode()&0o100 != 0:
		h.Mode = 0o755
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(t, in)
	return err
}
