package filter

import (
	"cmp"
	"unicode/utf8"
)

// truth is SQL's: a comparison with NULL is unknown, and unknown selects
// nothing, negated or not. The order no < unknown < yes makes AND the minimum
// and OR the maximum.
type truth int8

const (
	no truth = iota - 1
	unknown
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) negate(really bool) truth {
	if really {
		return -t
	}
	return t
}

// Match reports whether the filter selects the row. The nil filter selects all.
func (f *Filter) Match(r Row) bool {
	return f == nil || eval(f.root, &r) == yes
}

func eval(n node, r *Row) truth {
	switch n := n.(type) {
	case every:
		t := yes
		for _, term := range n.terms {
			if t = min(t, eval(term, r)); t == no {
				break
			}
		}
		return t
	case some:
		t := no
		for _, term := range n.terms {
			if t = max(t, eval(term, r)); t == yes {
				break
			}
		}
		return t
	case not:
		return eval(n.term, r).negate(true)
	case null:
		_, present := r.value(n.col)
		return truthOf(!present).negate(n.not)
	case compare:
		v, present := r.value(n.col)
		if !present {
			return unknown
		}
		return truthOf(holds(n.op, order(v, n.val)))
	case like:
		v, present := r.value(n.col)
		if !present {
			return unknown
		}
		return truthOf(matchLike(n.pattern, v.text)).negate(n.not)
	case member:
		v, present := r.value(n.col)
		if !present {
			return unknown
		}
		found := no
		for _, w := range n.vals {
			if v == w {
				found = yes
				break
			}
		}
		return found.negate(n.not)
	}
	return unknown
}

// value reads a column; present is false for NULL.
func (r *Row) value(c column) (v value, present bool) {
	switch c {
	case colID:
		return value{num: r.ID}, true
	case colCreatedAt:
		return value{text: r.CreatedAt}, true
	case colSource:
		return value{text: r.Source}, true
	case colType:
		return value{text: r.Type}, true
	case colSubtype:
		if r.Subtype != nil {
			return value{text: *r.Subtype}, true
		}
	}
	return value{}, false
}

// order compares two values of one column; the field not in use is equal.
func order(a, b value) int {
	return cmp.Or(cmp.Compare(a.num, b.num), cmp.Compare(a.text, b.text))
}

func holds(op string, order int) bool {
	switch op {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0 // >=
}

// matchLike is LIKE: % stands for any text, _ for one character, ASCII letters
// match in both cases. On a mismatch it goes back to the last % only, which is
// enough and keeps the work at len(pattern) * len(s).
func matchLike(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // the last % and where its text ends so far
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '%' {
			star, mark = p, i
			p++
			continue
		}
		if p < len(pattern) {
			pr, pn := utf8.DecodeRuneInString(pattern[p:])
			sr, sn := utf8.DecodeRuneInString(s[i:])
			if pr == '_' || fold(pr) == fold(sr) {
				p, i = p+pn, i+sn
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[mark:])
		mark += n
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '%' {
		p++
	}
	return p == len(pattern)
}

func fold(r rune) rune {
	if r >= 'A' && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}
