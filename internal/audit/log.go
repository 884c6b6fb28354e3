package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

const (
	maxFile  = 16 << 20 // bytes of one file
	lazily   = time.Second
	headName = "head"
)

var fileRule = regexp.MustCompile(`^[0-9]{6}\.jsonl$`)

// Log appends entries. It is safe for concurrent use; one process at a time has a
// home's log.
type Log struct {
	dir    string
	redact func(string) string

	syncing sync.Mutex // held while entries come to disk, taken before mu

	mu    sync.Mutex
	file  *os.File
	head  *os.File
	size  int64
	n     int // of the file
	seq   int64
	hash  string
	safe  int64       // the newest entry that is on disk
	lost  int64       // the newest that a failed sync may have lost
	why   error       // it failed
	dirty bool        // written, not yet on disk
	later *time.Timer // brings it there
	err   error       // of a late write to disk; the next append returns it
}

// Open opens or makes the log in dir. redact is given every text; nil changes
// nothing. What a crash left of an incomplete line is removed; entries that
// were on disk and are gone are put on record.
func Open(dir string, redact func(string) string) (*Log, error) {
	if redact == nil {
		redact = func(s string) string { return s }
	}
	l := &Log{dir: dir, redact: redact}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open audit log: %w", err), l.shut())
	}
	return l, nil
}

func (l *Log) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	names, err := files(l.dir)
	if err != nil {
		return err
	}
	if l.n = len(names); l.n == 0 {
		l.n = 1
	}
	if l.head, err = os.OpenFile(filepath.Join(l.dir, headName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	was, err := readHead(l.dir)
	if err != nil {
		return err
	}
	if l.file, err = os.OpenFile(l.name(l.n), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if err := l.last(names); err != nil {
		return err
	}
	switch {
	case was.seq > l.seq || was.seq == l.seq && was.hash != l.hash:
		return l.append(Entry{
			Action: ActionGap, Outcome: "found at the start",
			Detail: fmt.Sprintf("entry %d with hash %s was the newest on disk and is not there any more", was.seq, was.hash),
		}, true)
	case was.seq == 0 && l.seq > 1:
		return l.append(Entry{Action: ActionGap, Outcome: "found at the start", Detail: "the file head was gone, and with it the proof that nothing was cut off"}, true)
	case l.seq == 0:
		return l.append(Entry{Action: "begin", Outcome: "allowed", Detail: "the first entry"}, true)
	}
	l.dirty = true // what a killed process wrote may not be on disk yet
	return l.sync()
}

func (l *Log) name(n int) string { return filepath.Join(l.dir, fmt.Sprintf("%06d.jsonl", n)) }

// last finds the newest entry, and cuts off half a line behind it. A file that
// was begun and has no entry yet goes on from the one before.
func (l *Log) last(names []string) error {
	for i := len(names) - 1; i >= 0; i-- {
		b, err := os.ReadFile(filepath.Join(l.dir, names[i]))
		if err != nil {
			return err
		}
		whole := b[:bytes.LastIndexByte(b, '\n')+1]
		if i == len(names)-1 {
			if l.size = int64(len(whole)); len(whole) < len(b) {
				if err := l.file.Truncate(l.size); err != nil {
					return err
				}
			}
		}
		if len(whole) == 0 {
			continue
		}
		line := whole[bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1 : len(whole)-1]
		e, err := parse(line, "")
		if errors.Is(err, errForm) {
			// Somebody wrote here. Verify names it; what follows is chained to it as it is.
			e = Entry{Seq: int64(bytes.Count(b, []byte{'\n'})), Hash: sum("", line)}
		}
		l.seq, l.hash = e.Seq, e.Hash
		return nil
	}
	return nil
}

// Append adds an entry; its number, time and hash are the log's. kept reports that
// it has to be on disk when Append returns: callers that wait for that at the same time
// share one wait.
func (l *Log) Append(e Entry, kept bool) error {
	l.mu.Lock()
	seq, err := l.add(e)
	l.mu.Unlock()
	if err != nil || !kept {
		return err
	}
	return l.keep(seq)
}

func (l *Log) add(e Entry) (int64, error) {
	if l.file == nil {
		return 0, fs.ErrClosed
	}
	if err := l.err; err != nil {
		l.err = nil
		return 0, err
	}
	err := l.append(e, false)
	return l.seq, err
}

// keep returns when an entry is on disk. Others may append meanwhile.
func (l *Log) keep(seq int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.safe >= seq:
		return nil
	case l.lost >= seq: // the kernel says so once, and to one of those who wait
		return l.why
	case l.file == nil:
		return fs.ErrClosed
	}
	upto, file := mark{l.seq, l.hash}, l.file
	l.mu.Unlock()
	err := file.Sync()
	l.mu.Lock()
	if err != nil {
		if l.safe >= seq { // the file was ended meanwhile, which brought it there
			return nil
		}
		l.lost, l.why = upto.seq, fmt.Errorf("write audit log: %w", err)
		return l.why
	}
	return l.note(upto)
}

func (l *Log) append(e Entry, kept bool) error {
	if l.size >= maxFile {
		if err := l.next(); err != nil {
			return fmt.Errorf("begin audit file: %w", err)
		}
	}
	e.Seq, e.At = l.seq+1, time.Now().UTC()
	for _, text := range []*string{&e.Actor, &e.From, &e.Action, &e.Agent, &e.Outcome, &e.Detail, &e.Request} {
		*text = clip(l.redact(*text))
	}
	line, err := e.line(l.hash)
	if err != nil {
		return err
	}
	if n, err := l.file.Write(line); err != nil {
		if n > 0 { // half an entry must not be what the next one follows
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return fmt.Errorf("write audit entry: %w", err)
	}
	l.seq, l.hash, l.size, l.dirty = e.Seq, e.Hash, l.size+int64(len(line)), true
	if kept {
		return l.sync()
	}
	if l.later == nil {
		l.later = time.AfterFunc(lazily, l.lately)
	}
	return nil
}

func (l *Log) lately() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.later = nil
	if l.file != nil {
		l.err = l.sync()
	}
}

// sync brings what was written to disk, and then notes that it is there.
func (l *Log) sync() error {
	if !l.dirty {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return l.note(mark{l.seq, l.hash})
}

// note notes that the entries up to one are on disk.
func (l *Log) note(m mark) error {
	if m.seq <= l.safe {
		return nil
	}
	l.dirty = l.seq > m.seq
	l.safe = m.seq
	if _, err := l.head.WriteAt(fmt.Appendf(nil, "%020d %s\n", m.seq, m.hash), 0); err != nil {
		return fmt.Errorf("write audit head: %w", err)
	}
	return nil
}

func (l *Log) next() error {
	if err := l.sync(); err != nil {
		return err
	}
	f, err := os.OpenFile(l.name(l.n+1), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	old := l.file
	l.file, l.size, l.n = f, 0, l.n+1
	return old.Close()
}

// Close brings everything to disk. Appending afterwards is an error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return errors.Join(l.err, l.sync(), l.shut())
}

func (l *Log) shut() (err error) {
	if l.later != nil {
		l.later.Stop()
	}
	for _, f := range []*os.File{l.file, l.head} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	l.file = nil
	return err
}

// files are the names of the log's files in order; there is none missing between.
func files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if fileRule.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

type mark struct {
	seq  int64
	hash string
}

// readHead reads what was newest on disk; the zero mark when there is none.
func readHead(dir string) (mark, error) {
	f, err := os.Open(filepath.Join(dir, headName))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil || len(b) == 0 {
		return mark{}, err
	}
	var m mark
	if n, err := fmt.Sscanf(string(b), "%d %64s\n", &m.seq, &m.hash); n != 2 || err != nil || fmt.Sprintf("%020d %s\n", m.seq, m.hash) != string(b) {
		return mark{}, errHead
	}
	return m, nil
}

var errHead = errors.New("the file head is not what was written")
