package file

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxShown and maxLines bound the text of one result, in bytes and lines, where the settings do not.
	maxShown = 50 << 10
	maxLines = 2000
	// maxRead bounds a file that is read, in bytes: all of its lines are counted.
	maxRead = 1 << 30
)

var readSpec = toolset.Spec{
	Name: nameRead,
	Description: "Reads a text file in the working directory: lines from offset on, at most 2,000 lines and 50 KiB unless the settings say otherwise. " +
		"The last line of the result, in brackets, is not of the file: it says which lines these are and of how many. " +
		"A png, jpeg, gif or webp is shown as an image.",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, relative to the working directory"},` +
		`"offset":{"type":"integer","description":"the first line, from 1; 1 unless given"},` +
		`"limit":{"type":"integer","description":"how many lines; as many as are allowed unless given"}},` +
		`"required":["path"],"additionalProperties":false}`),
	Summary: lines,
}

// lines is the summary of a call: the file, and which lines of it.
func lines(args json.RawMessage) string {
	var a struct {
		Path          string
		Offset, Limit int
	}
	_ = json.Unmarshal(args, &a) // what is not understood reads nothing
	from := max(a.Offset, 1)
	switch {
	case a.Limit > 0 && a.Limit <= math.MaxInt-from:
		return fmt.Sprintf("%s:%d-%d", a.Path, from, from+a.Limit-1)
	case from > 1:
		return fmt.Sprintf("%s:%d-", a.Path, from)
	}
	return a.Path
}

func (f *files) read(ctx context.Context, d *dir, c toolset.Call) (none toolset.Result, err error) {
	a := struct {
		Path          string
		Offset, Limit int
	}{Offset: 1, Limit: math.MaxInt}
	if err = parse(c, &a); err != nil {
		return none, err
	}
	if a.Offset < 1 || a.Limit < 1 {
		return none, errors.New("offset and limit must be 1 or more: lines are counted from 1")
	}
	name, info, err := d.find(a.Path)
	if err != nil {
		return none, err
	}
	in, err := d.openFile(name, info)
	if err != nil {
		return none, err
	}
	defer in.Close()
	if info.Size() > maxRead {
		return none, fmt.Errorf("%s has %d bytes, and more than %d MiB are not read: use grep, or a command that shows a part of it", shown(name), info.Size(), maxRead>>20)
	}
	sum := sha256.New()
	r := bufio.NewReaderSize(io.TeeReader(io.LimitReader(in, maxRead), sum), 64<<10)
	head, err := r.Peek(sample)
	if err != nil && !errors.Is(err, io.EOF) {
		return none, problem(name, err)
	}
	if kind := toolset.ImageType(head); kind != "" {
		return readImage(r, name, kind, info.Size())
	}
	if isBinary(head) {
		return none, fmt.Errorf("%s is a binary file of %d bytes, which cannot be shown as text: use a command to examine it", shown(name), info.Size())
	}
	e := encodingOf(head)
	limits := c.Place.Config.GetToolLimits()
	s := shownLines{
		first: a.Offset, limit: min(a.Limit, cmp.Or(int(limits.GetReadMaxLines()), maxLines)), most: cmp.Or(int(limits.GetReadMaxBytes()), maxShown),
	}
	if e.wide() {
		b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
		if err != nil {
			return none, problem(name, err)
		}
		if len(b) > maxFile {
			return none, fmt.Errorf("%s is UTF-16 and larger than %d MiB: convert it to UTF-8 with a command (iconv)", shown(name), maxFile>>20)
		}
		text, change := e.decode(b)
		s.undecoded = change.Replaced
		err = s.read(ctx, bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return none, err
		}
	} else {
		_, _ = r.Discard(len(marks[e])) // it was peeked at
		if err := s.read(ctx, r); err != nil {
			return none, err
		}
	}
	if s.lines > 0 && s.first > s.lines {
		return none, fmt.Errorf("%s has %s, and offset %d is behind the last one", shown(name), plural(s.lines, "line"), s.first)
	}
	f.seen.add(c, name, hex.EncodeToString(sum.Sum(nil)))
	return toolset.Result{Text: s.result(e), Bounded: true}, nil
}

// readImage is the result of a file that is an image: a line about it, and the image. One that is too large is not read.
func readImage(r io.Reader, name, kind string, size int64) (toolset.Result, error) {
	result := toolset.Result{Text: fmt.Sprintf("%s is an image of type %s, %d bytes", shown(name), kind, size), Bounded: true}
	if size > toolset.MaxImage {
		result.Text += fmt.Sprintf("; more than %d MiB are not shown: make a smaller one with a command", toolset.MaxImage>>20)
		return result, nil
	}
	data, err := io.ReadAll(io.LimitReader(r, toolset.MaxImage+1))
	if err != nil {
		return result, problem(name, err)
	}
	result.Images = []toolset.Image{{Name: path.Base(name), Data: data}}
	return result, nil
}

// shownLines collects the lines of a file that are shown, and counts all.
type shownLines struct {
	first, limit int
	most         int // bytes that are shown

	lines int  // of the file
	shown int  // of them
	cut   bool // the only line is not complete
	open  bool // the last line of the file has no line break
	text  bytes.Buffer

	undecoded int // places of a file in UTF-16
}

// read reads a file to its end.
func (s *shownLines) read(ctx context.Context, r *bufio.Reader) error {
	begin, full, start := true, false, 0
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return errEnded
		}
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if begin {
				s.lines++
				start = s.text.Len()
			}
			wanted := s.lines >= s.first && s.lines < s.first+s.limit && !full
			if wanted && begin {
				s.shown++
			}
			switch left := s.most - s.text.Len(); {
			case wanted && len(piece) <= left:
				s.text.Write(piece)
			case wanted && s.shown == 1:
				for left > 0 && !utf8.RuneStart(piece[left]) {
					left--
				}
				s.text.Write(piece[:left])
				s.cut, full = true, true
			case wanted:
				s.text.Truncate(start)
				s.shown--
				full = true
			}
			begin = piece[len(piece)-1] == '\n'
		}
		switch {
		case err == io.EOF:
			s.open = !begin
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("the file cannot be read: %w", err)
		}
	}
}

// result is the text and what is to be known about it.
func (s *shownLines) result(e encoding) string {
	if s.lines == 0 {
		return "[the file is empty]"
	}
	last := s.first + s.shown - 1
	notes := []string{fmt.Sprintf("lines %d-%d of %d", s.first, last, s.lines)}
	if last < s.lines {
		notes[0] += fmt.Sprintf(", read on with offset %d", last+1)
	} else if s.open {
		notes = append(notes, "no line break at the end")
	}
	if s.cut {
		notes = append(notes, fmt.Sprintf("line %d is longer than %d KiB: use a command to see the rest of it", s.first, s.most>>10))
	}
	switch e {
	case plain:
	case marked:
		notes = append(notes, "the file begins with a byte order mark")
	default:
		notes = append(notes, "the file is UTF-16")
	}
	if s.undecoded > 0 {
		notes = append(notes, plural(s.undecoded, "place")+" could not be decoded and became U+FFFD")
	}
	text, change := boundary.Text(s.text.String(), 0)
	if note := change.Note(); note != "" {
		notes = append(notes, note)
	}
	if n := strings.Count(text, "\r\n"); n > 0 {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		if notes = append(notes, "lines end in CRLF"); n < s.shown {
			notes[len(notes)-1] = "some " + notes[len(notes)-1]
		}
	}
	text, left := clean(text)
	if left {
		notes = append(notes, "control characters were left out")
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "[" + strings.Join(notes, "; ") + "]"
}
