package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads a filter. Empty or blank text gives nil, which selects everything.
// The error is a [fault.Error] with reason FILTER_INVALID; its Meta has the
// position, counted in characters from 1.
func Parse(in string) (*Filter, error) {
	p := &parser{lex: lexer{in: in}}
	if len(in) > MaxBytes {
		p.lex.in = in[:0]
		return nil, p.lex.fail(0, fmt.Sprintf("it is longer than %d bytes", MaxBytes), "use IN or LIKE to say the same shorter")
	}
	if !utf8.ValidString(in) || strings.IndexByte(in, 0) >= 0 {
		p.lex.in = in[:0]
		return nil, p.lex.fail(0, "it is not UTF-8 text", "write it as UTF-8 without NUL")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == end {
		return nil, nil
	}
	root, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.tok.kind != end {
		return nil, p.unexpected("AND, OR or the end of the filter")
	}
	return &Filter{root: root}, nil
}

// parser is a recursive descent with one token of look-ahead.
type parser struct {
	lex lexer
	tok token
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

// is reports whether the token is this keyword.
func (p *parser) is(keyword string) bool {
	return p.tok.kind == word && strings.EqualFold(p.tok.text, keyword)
}

func (p *parser) accept(keyword string) (bool, error) {
	if !p.is(keyword) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expect(k kind, what string) error {
	if p.tok.kind != k {
		return p.unexpected(what)
	}
	return p.advance()
}

func (p *parser) or(depth int) (node, error) {
	terms, err := p.list("OR", depth, p.and)
	if err != nil || len(terms) > 1 {
		return some{terms}, err
	}
	return terms[0], nil
}

func (p *parser) and(depth int) (node, error) {
	terms, err := p.list("AND", depth, p.not)
	if err != nil || len(terms) > 1 {
		return every{terms}, err
	}
	return terms[0], nil
}

// list reads terms joined by the keyword into one flat list, so that a long
// chain is not a deep tree.
func (p *parser) list(keyword string, depth int, term func(int) (node, error)) ([]node, error) {
	var terms []node
	for {
		t, err := term(depth)
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
		if more, err := p.accept(keyword); !more || err != nil {
			return terms, err
		}
	}
}

func (p *parser) not(depth int) (node, error) {
	if depth > MaxDepth {
		return nil, p.lex.fail(p.tok.at, fmt.Sprintf("it nests deeper than %d", MaxDepth), "use fewer parentheses and NOTs")
	}
	if yes, err := p.accept("NOT"); err != nil {
		return nil, err
	} else if yes {
		t, err := p.not(depth + 1)
		return not{t}, err
	}
	if p.tok.kind != open {
		return p.predicate()
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.is("SELECT") || p.is("WITH") {
		return nil, p.lex.fail(p.tok.at, "a filter has no sub-select", grammar)
	}
	inner, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	return inner, p.expect(closing, "a closing parenthesis")
}

func (p *parser) predicate() (node, error) {
	if p.tok.kind != word {
		return nil, p.unexpected("a column")
	}
	name := p.tok
	col, ok := columnOf(name.text)
	if !ok {
		return nil, p.notColumn(name)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == operator {
		op := p.tok.text
		if op == "<>" {
			op = "!="
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		val, err := p.literal(col)
		return compare{col, op, val}, err
	}
	if yes, err := p.accept("IS"); err != nil {
		return nil, err
	} else if yes {
		neg, err := p.accept("NOT")
		if err != nil {
			return nil, err
		}
		if !p.is("NULL") {
			return nil, p.unexpected("NULL")
		}
		return null{col, neg}, p.advance()
	}
	neg, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	switch {
	case p.is("LIKE"):
		return p.like(col, neg)
	case p.is("IN"):
		return p.in(col, neg)
	case p.tok.kind == word:
		return nil, p.lex.fail(p.tok.at, fmt.Sprintf("`%s` is not an operator here", strings.ToUpper(clip(p.tok.text))), grammar)
	}
	return nil, p.unexpected("an operator")
}

func (p *parser) like(col column, neg bool) (node, error) {
	if col == colID {
		return nil, p.lex.fail(p.tok.at, "id is a number, and LIKE compares texts", "compare id by = != < <= > >= or IN")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	val, err := p.literal(col)
	if err == nil && p.is("ESCAPE") {
		err = p.lex.fail(p.tok.at, "LIKE has no ESCAPE here", "leave it out; % and _ always stand for any characters")
	}
	return like{col, neg, val.text}, err
}

func (p *parser) in(col column, neg bool) (node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if err := p.expect(open, "an opening parenthesis"); err != nil {
		return nil, err
	}
	if p.is("SELECT") || p.is("WITH") {
		return nil, p.lex.fail(p.tok.at, "a filter has no sub-select", "list the values: IN ('a', 'b')")
	}
	m := member{col: col, not: neg}
	for {
		v, err := p.literal(col)
		if err != nil {
			return nil, err
		}
		m.vals = append(m.vals, v)
		if p.tok.kind != comma {
			return m, p.expect(closing, "a comma or a closing parenthesis")
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
}

// literal reads the value that col is compared with.
func (p *parser) literal(col column) (value, error) {
	t := p.tok
	switch {
	case t.kind == number && col == colID:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return value{}, p.lex.fail(t.at, "the number is too large", "ids have at most 63 bits")
		}
		return value{num: n}, p.advance()
	case t.kind == text && col != colID:
		return value{text: t.text}, p.advance()
	case t.kind == number:
		return value{}, p.lex.fail(t.at, string(col)+" is a text", fmt.Sprintf("write '%s'", clip(t.text)))
	case t.kind == text:
		return value{}, p.lex.fail(t.at, "id is a number", "write it without quotes, like id > 12")
	case p.is("NULL"):
		return value{}, p.lex.fail(t.at, "nothing equals NULL", fmt.Sprintf("write %s IS NULL or %s IS NOT NULL", col, col))
	case t.kind == word && col != colID:
		return value{}, p.lex.fail(t.at, "a text stands in single quotes", fmt.Sprintf("write '%s'", clip(t.text)))
	}
	if col == colID {
		return value{}, p.unexpected("a whole number")
	}
	return value{}, p.unexpected("a text in single quotes")
}

// notColumn explains a word where a column was wanted.
func (p *parser) notColumn(name token) error {
	// What follows tells a function from a column; its own error does not matter.
	following, _ := p.lex.next()
	switch {
	case strings.EqualFold(name.text, "SELECT") || strings.EqualFold(name.text, "EXISTS"):
		return p.lex.fail(name.at, "a filter has no sub-select", grammar)
	case following.kind == open:
		return p.lex.fail(name.at, "a filter has no functions", grammar)
	case strings.EqualFold(name.text, "content"):
		return p.lex.fail(name.at, "the content of events cannot be filtered", "filter by type, subtype or source")
	}
	return p.lex.fail(name.at, fmt.Sprintf("`%s` is not a column", clip(name.text)), grammar)
}

func (p *parser) unexpected(wanted string) error {
	if p.tok.kind == end {
		return p.lex.fail(p.tok.at, "it ends where "+wanted+" should follow", grammar)
	}
	return p.lex.fail(p.tok.at, "here should be "+wanted, grammar)
}

// clip keeps a word short enough for an error text.
func clip(s string) string { return s[:min(len(s), 40)] }
