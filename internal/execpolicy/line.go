package execpolicy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// maxLine is the longest line that is analyzed, in bytes. The parser recurses with the depth
// of the text, which this bounds.
const maxLine = 8 << 10

// Command is a simple command.
type Command struct {
	Words []string // as the shell would give them to the program, the first one is as it was written
	Path  string   // absolute path of the program; empty: there is none
}

// Line is an analyzed command line.
type Line struct {
	Commands  []Command
	operators []string // between them
}

// Analyze reads a command line for bash. The error says in one line why it is not analyzable.
func Analyze(text string, h Host) (Line, error) {
	switch {
	case len(text) > maxLine:
		return Line{}, errors.New("it is too long to be analyzed")
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unusual):
		return Line{}, errors.New("it has line breaks or characters that a reader cannot see")
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return Line{}, errors.New("it is no correct command line of bash")
	}
	var l Line
	for i, s := range file.Stmts {
		if i > 0 {
			l.operators = append(l.operators, ";")
		}
		if err := l.add(s, h); err != nil {
			return Line{}, err
		}
	}
	if len(l.Commands) == 0 {
		return Line{}, errors.New("it has no command")
	}
	return l, nil
}

// unusual reports characters that look like another one, or like none. A line break is one of
// them: a person who reads the line in a chat may not see it.
func unusual(r rune) bool { return r != ' ' && r != '\t' && !unicode.IsPrint(r) }

func (l *Line) add(s *syntax.Stmt, h Host) error {
	if s.Negated || s.Background || s.Coprocess || s.Disown || len(s.Redirs) > 0 {
		return errors.New("it has a redirection, ! or &")
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return errors.New("it has an assignment")
		}
		var out Command
		for _, w := range c.Args {
			text, err := plain(w)
			if err != nil {
				return err
			}
			out.Words = append(out.Words, text)
		}
		out.Path = h.find(out.Words[0])
		l.Commands = append(l.Commands, out)
		return nil
	case *syntax.BinaryCmd:
		if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt && c.Op != syntax.Pipe {
			return errors.New("it has |&")
		}
		if err := l.add(c.X, h); err != nil {
			return err
		}
		l.operators = append(l.operators, c.Op.String())
		return l.add(c.Y, h)
	}
	return errors.New("it is more than simple commands")
}

// special are the characters that mean something to bash in a word without quotes, other than
// those that the parser makes nodes of.
const special = "\\*?[]{}~!"

// plain returns the text of a word of literals and quotes.
func plain(w *syntax.Word) (string, error) {
	var b strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, special) {
				return "", errors.New("it has an escape, a glob, braces or a tilde")
			}
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", errors.New("it has an escape")
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, in := range p.Parts {
				lit, ok := in.(*syntax.Lit)
				if !ok || p.Dollar || strings.ContainsAny(lit.Value, "\\!") {
					return "", errors.New("it has an expansion, a substitution or an escape")
				}
				b.WriteString(lit.Value)
			}
		default:
			return "", errors.New("it has an expansion or a substitution")
		}
	}
	return b.String(), nil
}

// Found reports whether the program of each command is known.
func (l Line) Found() bool {
	for _, c := range l.Commands {
		if c.Path == "" {
			return false
		}
	}
	return len(l.Commands) > 0
}

// String prints the line with the path of each program and with each word quoted. A line whose
// programs are not all [Line.Found] has their first words as they were.
func (l Line) String() string {
	var b strings.Builder
	for i, c := range l.Commands {
		if i > 0 {
			b.WriteString(" " + l.operators[i-1] + " ")
		}
		for j, w := range c.Words {
			switch {
			case j > 0:
				b.WriteString(" " + quote(w))
			case c.Path != "":
				b.WriteString(quote(c.Path))
			default: // it may be a word of the grammar, such as if
				b.WriteString(quoted(w))
			}
		}
	}
	return b.String()
}

// Join returns the words of a command as a line that [Analyze] reads.
func Join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return strings.Join(out, " ")
}

// quote returns a word that every shell reads as this text; one of letters, digits and / . _ -
// needs no quotes.
func quote(w string) string {
	simple := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r)
	}
	if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !simple(r) }) {
		return quoted(w)
	}
	return w
}

func quoted(w string) string { return "'" + strings.ReplaceAll(w, "'", `'"'"'`) + "'" }

// Host is where the programs of a line are found. Of the zero Host nothing is known, as of the image of a container:
// no list allows a line, and the line runs as it was given.
type Host struct {
	Path string // directories with : between
	Dir  string // the current directory of the command, absolute
	Home string // what ~/ of an entry of a list means; empty: nothing
	// Stat reports what is at an absolute path.
	Stat func(path string) (there, executable bool)
	// Real follows links; nil: there are none.
	Real func(path string) string
}

// System returns the host that this process runs on.
func System(path, dir string) Host {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	return Host{
		Path: path, Dir: dir, Home: home,
		Stat: func(path string) (there, executable bool) {
			st, err := os.Stat(path)
			if err != nil {
				_, err = os.Lstat(path)
				return err == nil, false
			}
			return true, st.Mode().IsRegular() && st.Mode()&0o111 != 0
		},
		Real: func(path string) string {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				return real
			}
			return path
		},
	}
}

// find returns the absolute path of a program; empty: there is none.
func (h Host) find(word string) string {
	if strings.Contains(word, "/") {
		if !filepath.IsAbs(word) {
			word = filepath.Join(h.Dir, word)
		}
		word = filepath.Clean(word)
		if _, ok := h.Stat(word); ok && filepath.IsAbs(word) {
			return word
		}
		return ""
	}
	if word == "" {
		return ""
	}
	for _, dir := range filepath.SplitList(h.Path) {
		path := filepath.Join(dir, word)
		if _, ok := h.Stat(path); ok && filepath.IsAbs(path) {
			return path
		}
	}
	return ""
}

// onPath reports whether a program is in a directory of PATH, where the agent cannot write.
func (h Host) onPath(path string) bool {
	for _, dir := range filepath.SplitList(h.Path) {
		if filepath.Dir(path) == filepath.Clean(dir) {
			return true
		}
	}
	return false
}
