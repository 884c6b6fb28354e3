package filter

import (
	"strconv"
	"strings"
)

// Where gives the condition for SQLite with a ? for each value, in parentheses,
// and the values in order. The nil filter gives "" and nil.
func (f *Filter) Where() (string, []any) {
	return f.build(&builder{})
}

// Numbered gives the condition for PostgreSQL with $first, $first+1, ... for the
// values. Texts are compared in the C collation, so that it selects what
// [Filter.Where] selects. The nil filter gives "" and nil.
func (f *Filter) Numbered(first int) (string, []any) {
	return f.build(&builder{numbered: true, first: first})
}

func (f *Filter) build(b *builder) (string, []any) {
	if f == nil {
		return "", nil
	}
	b.node(f.root)
	return b.sql.String(), b.args
}

// builder writes SQL from fixed words; every literal becomes an argument.
type builder struct {
	sql      strings.Builder
	args     []any
	numbered bool
	first    int
}

func (b *builder) node(n node) {
	b.sql.WriteByte('(')
	switch n := n.(type) {
	case every:
		b.terms(n.terms, " AND ")
	case some:
		b.terms(n.terms, " OR ")
	case not:
		b.sql.WriteString("NOT ")
		b.node(n.term)
	case compare:
		b.column(n.col)
		b.sql.WriteString(" " + n.op + " ")
		b.value(n.col, n.val)
	case like:
		b.column(n.col)
		b.sql.WriteString(negated(n.not))
		if b.numbered {
			// In the C collation ILIKE folds ASCII letters only; the empty ESCAPE
			// takes the backslash its special meaning, which SQLite does not know.
			b.sql.WriteString(" ILIKE ")
			b.value(n.col, value{text: n.pattern})
			b.sql.WriteString(" ESCAPE ''")
		} else {
			b.sql.WriteString(" LIKE ")
			b.value(n.col, value{text: n.pattern})
		}
	case member:
		b.column(n.col)
		b.sql.WriteString(negated(n.not) + " IN (")
		for i, v := range n.vals {
			if i > 0 {
				b.sql.WriteString(", ")
			}
			b.value(n.col, v)
		}
		b.sql.WriteByte(')')
	case null:
		b.sql.WriteString(string(n.col) + " IS" + negated(n.not) + " NULL")
	}
	b.sql.WriteByte(')')
}

func (b *builder) terms(terms []node, word string) {
	for i, t := range terms {
		if i > 0 {
			b.sql.WriteString(word)
		}
		b.node(t)
	}
}

func (b *builder) column(c column) {
	b.sql.WriteString(string(c))
	if b.numbered && c != colID {
		b.sql.WriteString(` COLLATE "C"`)
	}
}

func (b *builder) value(c column, v value) {
	if c == colID {
		b.args = append(b.args, v.num)
	} else {
		b.args = append(b.args, v.text)
	}
	if !b.numbered {
		b.sql.WriteByte('?')
		return
	}
	b.sql.WriteString("$" + strconv.Itoa(b.first+len(b.args)-1))
}
