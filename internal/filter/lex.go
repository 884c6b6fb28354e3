package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

type kind uint8

const (
	end kind = iota
	word
	text
	number
	operator
	open
	closing
	comma
)

// token is a piece of the filter; text is its meaning (without quotes), at its
// first byte in the input.
type token struct {
	kind kind
	text string
	at   int
}

// lexer cuts the input into tokens, one at a time.
type lexer struct {
	in  string
	pos int
}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.in) && strings.IndexByte(" \t\r\n", l.in[l.pos]) >= 0 {
		l.pos++
	}
	at := l.pos
	if at == len(l.in) {
		return token{kind: end, at: at}, nil
	}
	rest := l.in[at:]
	take := func(k kind, n int) (token, error) {
		l.pos += n
		return token{kind: k, text: rest[:n], at: at}, nil
	}
	switch c := rest[0]; {
	case letter(c):
		return take(word, span(rest, func(c byte) bool { return letter(c) || digit(c) }))
	case digit(c), c == '-' && len(rest) > 1 && digit(rest[1]):
		n := 1 + span(rest[1:], digit)
		if n < len(rest) && (letter(rest[n]) || rest[n] == '.') {
			return token{}, l.fail(at, "this is not a whole number", "numbers are whole and stand alone, like id > 12")
		}
		return take(number, n)
	case c == '\'':
		return l.quote(at)
	case c == '(':
		return take(open, 1)
	case c == ')':
		return take(closing, 1)
	case c == ',':
		return take(comma, 1)
	case strings.HasPrefix(rest, "<="), strings.HasPrefix(rest, ">="), strings.HasPrefix(rest, "!="), strings.HasPrefix(rest, "<>"):
		return take(operator, 2)
	case strings.HasPrefix(rest, "=="):
		return token{}, l.fail(at, "`==` is not an operator", "write one `=`")
	case c == '=', c == '<', c == '>':
		return take(operator, 1)
	case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"):
		return token{}, l.fail(at, "a filter has no comments", "leave the comment out")
	}
	return token{}, l.stray(at)
}

// stray explains a byte that begins no token.
func (l *lexer) stray(at int) error {
	switch l.in[at] {
	case '"', '`', '[':
		return l.fail(at, "texts stand in single quotes and columns in none", "write 'text' instead of \"text\"")
	case ';':
		return l.fail(at, "a filter is one condition, without `;`", "leave out the `;` and what follows")
	}
	r, _ := utf8.DecodeRuneInString(l.in[at:])
	return l.fail(at, fmt.Sprintf("unexpected character %q", r), grammar)
}

// quote reads 'text' with a doubled one for a quote.
func (l *lexer) quote(at int) (token, error) {
	var b strings.Builder
	for rest := l.in[at+1:]; ; {
		i := strings.IndexByte(rest, '\'')
		if i < 0 {
			return token{}, l.fail(at, "the text that begins here has no closing quote", "close it with ' and write a quote inside it as ''")
		}
		b.WriteString(rest[:i])
		rest = rest[i+1:]
		if !strings.HasPrefix(rest, "'") {
			l.pos = len(l.in) - len(rest)
			return token{kind: text, text: b.String(), at: at}, nil
		}
		b.WriteByte('\'')
		rest = rest[1:]
	}
}

// grammar is the advice where nothing more to the point is known.
const grammar = "compare id, created_at, source, type, subtype by = != < <= > >= LIKE IN or IS NULL, joined by AND, OR, NOT"

// fail makes the error for the byte at; the place is shown with a ^ in front.
func (l *lexer) fail(at int, problem, fix string) error {
	position := utf8.RuneCountInString(l.in[:at]) + 1
	what := fmt.Sprintf("filter is not valid at position %d: %s: %s", position, problem, l.around(at))
	e := fault.New(codes.InvalidArgument, fault.FilterInvalid, what, fix)
	e.Fields = []fault.Field{{Name: "filter", Problem: fmt.Sprintf("position %d: %s", position, problem)}}
	e.Meta = map[string]string{"position": strconv.Itoa(position)}
	return e
}

// around is the input near at, cut to some 40 bytes, with a ^ before at.
func (l *lexer) around(at int) string {
	const before, after = 24, 16
	from, to := max(0, at-before), min(len(l.in), at+after)
	for from > 0 && !utf8.RuneStart(l.in[from]) {
		from--
	}
	for to < len(l.in) && !utf8.RuneStart(l.in[to]) {
		to++
	}
	s := l.in[from:at] + "^" + l.in[at:to]
	if from > 0 {
		s = "..." + s
	}
	if to < len(l.in) {
		s += "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }

func digit(c byte) bool { return c >= '0' && c <= '9' }
