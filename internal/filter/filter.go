// Package filter parses and applies the filter language, which selects the events of a
// subscription or a read.
//
//	filter    = or                          empty text: every event
//	or        = and { "OR" and }
//	and       = not { "AND" not }
//	not       = "NOT" not | "(" or ")" | predicate
//	predicate = column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
//	          | column [ "NOT" ] "LIKE" text
//	          | column [ "NOT" ] "IN" "(" literal { "," literal } ")"
//	          | column "IS" [ "NOT" ] "NULL"
//	column    = id | created_at | source | type | subtype
//	literal   = whole number for id, 'text' for the others ('' is one quote)
//
// It is the part of SQL that filters of the external tools use, and means there
// what it means in SQL: texts compare byte by byte, LIKE ignores the case of
// ASCII letters and has no escape character, and a comparison with NULL (only
// subtype can be NULL) is neither true nor false. Keywords and columns may be
// written in any case.
//
// It promises that no byte of a filter reaches a database except as a bound
// value, that [Filter.Match] selects what the database selects for
// [Filter.Where], and that the work for one filter is bounded ([MaxBytes],
// [MaxDepth]). Everything outside the grammar is FILTER_INVALID with a position.
//
// It does not read the content of events and runs no query.
package filter

import (
	"slices"
	"strconv"
	"strings"
)

// Limits of one filter.
const (
	// MaxBytes is the longest filter text.
	MaxBytes = 4 << 10
	// MaxDepth is how deep parentheses and NOT may nest.
	MaxDepth = 64
)

// Filter is a parsed filter. The nil *Filter selects every event.
type Filter struct{ root node }

// Row is what a filter can see of an event.
type Row struct {
	ID        int64
	CreatedAt string
	Source    string
	Type      string
	Subtype   *string // nil is NULL
}

// column is one of the five columns; its value is its name.
type column string

const (
	colID        column = "id"
	colCreatedAt column = "created_at"
	colSource    column = "source"
	colType      column = "type"
	colSubtype   column = "subtype"
)

var columns = []column{colID, colCreatedAt, colSource, colType, colSubtype}

// node is a condition. The set is closed: every, some, not, compare, like,
// member, null.
type node interface{ isNode() }

type (
	// every is AND over at least two conditions, some is OR.
	every struct{ terms []node }
	some  struct{ terms []node }
	not   struct{ term node }

	compare struct {
		col column
		op  string // = != < <= > >=
		val value
	}
	like struct {
		col     column
		not     bool
		pattern string
	}
	member struct {
		col  column
		not  bool
		vals []value // at least one
	}
	null struct {
		col column
		not bool
	}
)

func (every) isNode()   {}
func (some) isNode()    {}
func (not) isNode()     {}
func (compare) isNode() {}
func (like) isNode()    {}
func (member) isNode()  {}
func (null) isNode()    {}

// value is a literal: num for the column id, text for the others.
type value struct {
	num  int64
	text string
}

func (v value) literal(c column) string {
	if c == colID {
		return strconv.FormatInt(v.num, 10)
	}
	return quoted(v.text)
}

func quoted(s string) string {
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// String prints the filter in its canonical form, which parses to an equal
// filter. The nil filter prints as "". The canonical text can be longer than
// MaxBytes when the parsed one was close to it.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	printNode(&b, f.root, 0)
	return b.String()
}

// Binding strength, weakest first.
const (
	bindOr = iota + 1
	bindAnd
	bindNot
)

// printNode writes n, in parentheses unless it binds stronger than outer.
func printNode(b *strings.Builder, n node, outer int) {
	switch n := n.(type) {
	case every:
		printTerms(b, n.terms, " AND ", bindAnd, outer)
	case some:
		printTerms(b, n.terms, " OR ", bindOr, outer)
	case not:
		b.WriteString("NOT ")
		printNode(b, n.term, bindNot)
	case compare:
		b.WriteString(string(n.col) + " " + n.op + " " + n.val.literal(n.col))
	case like:
		b.WriteString(string(n.col) + negated(n.not) + " LIKE " + quoted(n.pattern))
	case member:
		b.WriteString(string(n.col) + negated(n.not) + " IN (")
		for i, v := range n.vals {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(v.literal(n.col))
		}
		b.WriteString(")")
	case null:
		b.WriteString(string(n.col) + " IS" + negated(n.not) + " NULL")
	}
}

func printTerms(b *strings.Builder, terms []node, word string, bind, outer int) {
	if bind <= outer {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	for i, t := range terms {
		if i > 0 {
			b.WriteString(word)
		}
		printNode(b, t, bind)
	}
}

func negated(not bool) string {
	if not {
		return " NOT"
	}
	return ""
}

func columnOf(word string) (column, bool) {
	c := column(strings.ToLower(word))
	return c, slices.Contains(columns, c)
}
