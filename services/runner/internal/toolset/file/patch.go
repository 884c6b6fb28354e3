package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

var patchSpec = toolset.Spec{
	Name: namePatch,
	Description: "Changes several files in the working directory at once: all of them, or none when a part does not fit. The form:\n" +
		"*** Begin Patch\n*** Add File: PATH\n+each line of the new file\n*** Delete File: PATH\n" +
		"*** Update File: PATH\n*** Move to: NEW PATH\n@@ a line that is before the change, where it is needed to find it\n" +
		" a line that stays\n-a line that is removed\n+a line that is added\n*** End Patch",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"patch":{"type":"string","description":"the patch, from *** Begin Patch to *** End Patch"}},` +
		`"required":["patch"],"additionalProperties":false}`),
	Summary: patched,
}

// patched is the summary of a call: the files that the patch names.
func patched(args json.RawMessage) string {
	var a struct{ Patch string }
	_ = json.Unmarshal(args, &a) // what is not understood changes nothing
	var files []string
	size := 0
	for line := range strings.Lines(a.Patch) {
		for _, word := range []string{addFile, deleteFile, updateFile} {
			if name, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), word); ok && size < toolset.MaxSummary {
				files, size = append(files, name), size+len(name)
			}
		}
	}
	return strings.Join(files, " ")
}

const (
	// maxTogether bounds the old and the new contents of one patch together, in bytes.
	maxTogether = 4 * maxFile
	// maxCompared bounds the comparisons of lines of one patch: two seconds or less.
	maxCompared = 200_000_000
)

// The lines that begin a part of a patch.
const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	addFile    = "*** Add File: "
	deleteFile = "*** Delete File: "
	updateFile = "*** Update File: "
	moveTo     = "*** Move to: "
	endOfFile  = "*** End of File"
)

// unified is the position that other forms of a patch have, and this one does not need.
var unified = regexp.MustCompile(`^-\d+(?:,\d+)? \+\d+(?:,\d+)? @@`)

// section is the part of a patch that is about one file.
type section struct {
	kind       string // addFile, deleteFile or updateFile
	path, move string
	line       int // in the patch
	added      []string
	blank      bool // an empty line is behind those: only the end of the section may follow
	hunks      []hunk
}

// hunk is one change of a file.
type hunk struct {
	line    int      // in the patch
	anchors []string // lines to find first, in this order
	lines   []string // with a blank, - or + in front
	atEnd   bool
}

// trim removes the empty lines at the end, which separate a hunk from what follows.
func (h *hunk) trim() {
	n := len(h.lines)
	for n > 0 && h.lines[n-1] == "" {
		n--
	}
	h.lines = h.lines[:n]
	for i, l := range h.lines {
		if l == "" { // an empty line that stays, without its blank
			h.lines[i] = " "
		}
	}
}

// old are the lines that a hunk finds.
func (h hunk) old() (lines []string) {
	for _, l := range h.lines {
		if l[0] != '+' {
			lines = append(lines, l[1:])
		}
	}
	return lines
}

// parsePatch divides a patch into sections.
// maxSections bounds the files of a patch: each is synchronized.
const maxSections = 200

func parsePatch(text string) ([]section, error) {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")), "\n")
	if strings.TrimSpace(lines[0]) != beginPatch {
		return nil, errors.New("the patch does not begin with *** Begin Patch: follow the form in the description of the tool")
	}
	if strings.TrimSpace(lines[len(lines)-1]) != endPatch {
		return nil, errors.New("the patch does not end with *** End Patch, and may be incomplete: send all of it")
	}
	var all []section
	var at *section // the last one
	for i, line := range lines[1 : len(lines)-1] {
		number := i + 2
		if kind := header(line); kind != "" {
			all = append(all, section{kind: kind, path: strings.TrimSpace(line[len(kind):]), line: number})
			at = &all[len(all)-1]
			continue
		}
		switch {
		case at != nil && at.add(line, number):
		case strings.TrimSpace(line) == "":
		default:
			return nil, fmt.Errorf("line %d of the patch, %s, does not belong there: a line of a new file begins with +, one of an update with a blank, - or +", number, shown(line))
		}
	}
	if len(all) > maxSections {
		return nil, fmt.Errorf("the patch changes %d files, and %d are the most: divide it", len(all), maxSections)
	}
	if len(all) == 0 {
		return nil, errors.New("the patch changes no file: name one with *** Add File, *** Update File or *** Delete File")
	}
	for _, s := range all {
		for i := range s.hunks {
			s.hunks[i].trim()
		}
		if s.kind == updateFile && len(s.hunks) == 0 && s.move == "" {
			return nil, fmt.Errorf("the update of %s has no lines: give the lines to remove and to add", shown(s.path))
		}
	}
	return all, nil
}

// header is the beginning of a section; empty: the line begins none.
func header(line string) string {
	for _, kind := range []string{addFile, deleteFile, updateFile} {
		if strings.HasPrefix(line, kind) {
			return kind
		}
	}
	return ""
}

// add adds a line to a section; false: it does not belong there.
func (s *section) add(line string, number int) bool {
	switch s.kind {
	case addFile:
		if strings.TrimSpace(line) == "" {
			s.blank = true
			return true
		}
		added, ok := strings.CutPrefix(line, "+")
		if ok {
			s.added = append(s.added, added)
		}
		return ok && !s.blank
	case deleteFile:
		return false
	}
	if to, ok := strings.CutPrefix(line, moveTo); ok && s.move == "" && len(s.hunks) == 0 {
		s.move = strings.TrimSpace(to)
		return true
	}
	if anchor, ok := strings.CutPrefix(line, "@@"); ok {
		if n := len(s.hunks); n == 0 || len(s.hunks[n-1].lines) > 0 {
			s.hunks = append(s.hunks, hunk{line: number})
		}
		anchor = strings.TrimPrefix(anchor, " ")
		if h := &s.hunks[len(s.hunks)-1]; strings.TrimSpace(anchor) != "" && !unified.MatchString(anchor) {
			h.anchors = append(h.anchors, anchor)
		}
		return true
	}
	if len(s.hunks) == 0 {
		s.hunks = append(s.hunks, hunk{line: number})
	}
	h := &s.hunks[len(s.hunks)-1]
	switch {
	case strings.TrimSpace(line) == endOfFile:
		h.atEnd = true
	case line == "" || strings.ContainsRune(" -+", rune(line[0])):
		h.lines = append(h.lines, line)
	case strings.HasPrefix(line, `\ No newline`):
	default:
		return false
	}
	return true
}

// patch plans a call of the tool apply_patch.
func patch(ctx context.Context, d *dir, c toolset.Call) ([]change, string, error) {
	var a struct{ Patch string }
	if err := parse(c, &a); err != nil {
		return nil, "", err
	}
	sections, err := parsePatch(a.Patch)
	if err != nil {
		return nil, "", err
	}
	p := planned{dir: d, paths: map[string]bool{}}
	for _, s := range sections {
		if err := p.section(ctx, s); err != nil {
			return nil, "", fmt.Errorf("%w (no file was changed)", err)
		}
	}
	for name := range p.paths {
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if p.paths[up] {
				return nil, "", fmt.Errorf("the patch uses %s as a file and as a directory: no file was changed, make two patches of it", shown(up))
			}
		}
	}
	return p.changes, "patched " + plural(len(sections), "file") + "\n" + strings.Join(p.done, "\n"), nil
}

// planned are the changes of a patch so far.
type planned struct {
	dir      *dir
	changes  []change
	done     []string        // what the result says
	paths    map[string]bool // that are changed
	size     int             // of all contents
	compared int             // lines
}

// add adds a change.
func (p *planned) add(ch change) error {
	if p.paths[ch.Path] {
		return fmt.Errorf("%s occurs twice in the patch: put all of its hunks into one section", shown(ch.Path))
	}
	p.paths[ch.Path] = true
	if p.size += len(ch.before) + len(ch.after); p.size > maxTogether {
		return fmt.Errorf("the files of the patch have more than %d MiB together: divide it", maxTogether>>20)
	}
	if ch.Before != ch.After {
		p.changes = append(p.changes, ch)
	}
	return nil
}

// absent resolves the path of a file that is made.
func (p *planned) absent(name string) (string, error) {
	resolved, info, err := p.dir.resolve(name)
	if err == nil && info != nil {
		err = fmt.Errorf("%s exists already: change it with *** Update File, or choose another name", shown(name))
	}
	return resolved, err
}

// section adds the changes of one section.
func (p *planned) section(ctx context.Context, s section) error {
	if ctx.Err() != nil {
		return errEnded
	}
	if s.kind == addFile {
		name, err := p.absent(s.path)
		if err != nil {
			return err
		}
		p.done = append(p.done, "added "+shown(name))
		text := strings.Join(s.added, "\n")
		if len(s.added) > 0 {
			text += "\n"
		}
		return p.add(p.dir.put(name, nil, nil, []byte(text)))
	}
	name, info, err := p.dir.find(s.path)
	if err != nil {
		return err
	}
	if s.kind == deleteFile {
		before, err := p.dir.content(name, info)
		if err != nil {
			return err
		}
		p.done = append(p.done, "deleted "+shown(name))
		return p.add(remove(name, info, before))
	}
	return p.update(ctx, s, name, info)
}

// update adds the changes of the section of a file that is updated or moved.
func (p *planned) update(ctx context.Context, s section, name string, info fs.FileInfo) error {
	before, after := []byte(nil), []byte(nil)
	var err error
	if len(s.hunks) == 0 { // moved as it is, which need not be text
		if before, err = p.dir.content(name, info); err != nil {
			return err
		}
		after = before
	} else {
		raw, text, e, err := p.dir.text(name, info)
		if err != nil {
			return err
		}
		if text, err = p.hunks(ctx, s, text); err != nil {
			return err
		}
		before, after = raw, e.encode(text)
		if s.move == "" && string(before) == string(after) {
			return fmt.Errorf("the update of %s changes nothing: give the lines to remove with - and those to add with +", shown(s.path))
		}
	}
	if len(after) > maxFile {
		return fmt.Errorf("%s would become larger than %d MiB: change it with a command", shown(name), maxFile>>20)
	}
	if s.move == "" {
		p.done = append(p.done, "updated "+shown(name))
		return p.add(p.dir.put(name, info, before, after))
	}
	to, err := p.absent(s.move)
	if err != nil {
		return err
	}
	p.done = append(p.done, "moved "+shown(name)+" to "+shown(to))
	moved := p.dir.put(to, nil, nil, after)
	moved.Mode = info.Mode().Perm()
	moved.uid, moved.gid = owner(info)
	return errors.Join(p.add(moved), p.add(remove(name, info, before)))
}

// hunks returns the text of a file with the hunks of a section.
func (p *planned) hunks(ctx context.Context, s section, text string) (string, error) {
	full := strings.SplitAfter(text, "\n") // with their line ends
	if full[len(full)-1] == "" {
		full = full[:len(full)-1]
	}
	bare := make([]string, len(full))
	for i, l := range full {
		bare[i] = strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
	}
	in := searchedLines{exact: bare}
	end := "\n"
	if endsInCRLF(text) {
		end = "\r\n"
	}
	var out strings.Builder
	next := 0 // the first line that is not written yet
	for n, h := range s.hunks {
		if ctx.Err() != nil {
			return "", errEnded
		}
		from, err := p.position(h, &in, next)
		if err != nil {
			return "", err
		}
		if from < 0 {
			return "", fmt.Errorf("hunk %d of %s (line %d of the patch) does not fit: its lines do not occur there%s: read the file, and copy the lines that stay and those that are removed exactly",
				n+1, shown(s.path), h.line, behind(next))
		}
		writeLines(&out, full[next:from], end)
		next = from
		for _, l := range h.lines {
			switch l[0] {
			case ' ':
				writeLines(&out, full[next:next+1], end)
				next++
			case '-':
				next++
			default:
				writeLines(&out, []string{l[1:] + end}, end)
			}
		}
	}
	writeLines(&out, full[next:], end)
	if text != "" && !strings.HasSuffix(text, "\n") { // the file has no line break at its end
		return strings.TrimSuffix(out.String(), end), nil
	}
	return out.String(), nil
}

func behind(next int) string {
	if next == 0 {
		return ""
	}
	return fmt.Sprintf(" behind line %d", next)
}

// writeLines writes lines, each with a line end.
func writeLines(out *strings.Builder, lines []string, end string) {
	for _, l := range lines {
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString(end)
		}
	}
}

// position is the first line of a file that a hunk is about, from a line on; -1: it does
// not fit.
func (p *planned) position(h hunk, in *searchedLines, from int) (int, error) {
	for _, a := range h.anchors {
		at, err := p.search([]string{a}, in, from, false)
		if at < 0 || err != nil {
			return at, err
		}
		from = at + 1
	}
	old := h.old()
	if len(old) == 0 { // lines that are only added
		if len(h.anchors) == 0 || h.atEnd {
			from = len(in.exact)
		}
		return from, nil
	}
	return p.search(old, in, from, h.atEnd)
}

// searchedLines are the lines of a file without their line ends.
type searchedLines struct {
	exact   []string
	trimmed []string // without the blanks at their ends; nil: not needed yet
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.TrimRight(l, " \t\r")
	}
	return out
}

// search finds lines in a file, from a line on: exactly, else without the blanks at their
// ends.
func (p *planned) search(old []string, in *searchedLines, from int, atEnd bool) (int, error) {
	if atEnd {
		from = max(from, len(in.exact)-len(old))
	}
	at, err := p.index(in.exact, old, from)
	if at >= 0 || err != nil {
		return at, err
	}
	if in.trimmed == nil {
		in.trimmed = trimmed(in.exact)
	}
	return p.index(in.trimmed, trimmed(old), from)
}

// index is where old occurs in lines, from a line on; -1: nowhere.
func (p *planned) index(lines, old []string, from int) (int, error) {
	for at := from; at+len(old) <= len(lines); at++ {
		n := 0
		for n < len(old) && lines[at+n] == old[n] {
			n++
		}
		if n == len(old) {
			return at, nil
		}
		if p.compared += n + 1; p.compared > maxCompared {
			return -1, errors.New("the patch needs too many comparisons: divide it, or give lines that are rarer in the file")
		}
	}
	return -1, nil
}
