package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// Report is what Verify found.
type Report struct {
	Entries int64  `json:"entries"`
	Head    string `json:"head"` // hash of the newest entry
}

// maxLine is more than any entry.
const maxLine = 64 << 10

// Read calls each for every entry in order, without judging the chain; a line that
// is none is passed over.
func Read(dir string, each func(Entry) error) error {
	return lines(dir, func(_ string, _ int, line []byte) error {
		e, err := parse(line, "")
		if errors.Is(err, errForm) {
			return nil
		}
		return each(e)
	})
}

// Verify checks every byte of the log in dir. The error, AUDIT_BROKEN, names the
// first entry that is not as it was written. head, when not empty, is a hash that
// was noted earlier and must be that of an entry.
func Verify(dir, head string) (Report, error) {
	var r Report
	var prev string
	was, err := readHead(dir)
	if errors.Is(err, errHead) {
		return r, broken(err.Error())
	}
	if err != nil {
		return r, fmt.Errorf("read audit head: %w", err)
	}
	reached, noted := was.seq == 0, head == ""
	err = lines(dir, func(name string, n int, line []byte) error {
		want := r.Entries + 1
		place := fmt.Sprintf("entry %d (%s line %d)", want, name, n)
		e, err := parse(line, prev)
		switch {
		case err == nil && e.Seq != want, errors.Is(err, errHash) && e.Seq > want:
			return broken(fmt.Sprintf("%s: there is entry %d in its place; something was removed or moved", place, e.Seq))
		case err != nil:
			return broken(place + ": " + err.Error())
		case e.Action == ActionGap:
			return broken(place + ": " + e.Detail)
		case e.Seq == was.seq && e.Hash != was.hash:
			return broken(place + ": it is not the one that was noted in head")
		}
		r.Entries, prev = want, e.Hash
		reached = reached || e.Seq == was.seq
		noted = noted || e.Hash == head
		return nil
	})
	r.Head = prev
	switch {
	case err != nil:
		return r, err
	case r.Entries == 0 && was.seq == 0:
		return r, fault.New(codes.NotFound, fault.InvalidArgument, "there is no audit log in "+dir, "it begins when a registry first starts here")
	case was.seq == 0:
		return r, broken("the file head is gone")
	case !reached:
		return r, broken(fmt.Sprintf("entry %d: it is gone, and what followed it; entry %d was on disk", r.Entries+1, was.seq))
	case !noted:
		return r, broken("no entry has the hash that was noted: the log was written anew")
	}
	return r, nil
}

func broken(what string) error {
	return fault.New(codes.DataLoss, fault.AuditBroken, "the audit log is not what was written: "+what,
		"compare the log with a copy of it from before that entry")
}

// lines reads the files in order, line by line. A last line without an end is
// what a crash leaves, or a writer is at it: nobody was told that it is there.
func lines(dir string, each func(name string, n int, line []byte) error) error {
	names, err := files(dir)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	for i, name := range names {
		if want := fmt.Sprintf("%06d.jsonl", i+1); name != want {
			return broken("the file " + want + " is gone")
		}
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return broken("the file " + name + " is gone")
		}
		if err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
		err = linesOf(f, i == len(names)-1, func(n int, line []byte) error { return each(name, n, line) })
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func linesOf(f io.Reader, last bool, each func(n int, line []byte) error) error {
	r := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			if err := each(n, bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
				return err
			}
		case errors.Is(err, io.EOF) && (len(line) == 0 || last):
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
			return broken(fmt.Sprintf("line %d has no end", n))
		default:
			return fmt.Errorf("read audit log: %w", err)
		}
	}
}
