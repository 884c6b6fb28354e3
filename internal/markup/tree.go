package markup

import (
	"bufio"
	"html"
	"net/url"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// kind of a node. All but plain and raw are the names of elements of HTML.
type kind string

const (
	paragraph kind = "p"
	heading   kind = "h"
	bullets   kind = "ul"
	numbers   kind = "ol"
	item      kind = "li"
	quote     kind = "blockquote"
	pre       kind = "pre"
	rule      kind = "hr"
	table     kind = "table"
	row       kind = "tr"
	cell      kind = "td"
	bold      kind = "strong"
	italic    kind = "em"
	strike    kind = "del"
	code      kind = "code"
	link      kind = "a"
	newline   kind = "br"
	plain     kind = ""
)

// node is one element of a text.
type node struct {
	kind     kind
	text     string // of plain, code and pre
	to       string // of a link: it is safe
	language string // of pre
	number   int    // of the first item; of a heading: its level
	children []*node
}

// maxInline is how many kinds of emphasis may be in each other; further ones are left out.
const maxInline = 16

// reader makes the nodes of a text.
type reader struct {
	source []byte
	left   int // nodes that it may make
}

// parse returns the blocks of a text, or none where it has too many nodes.
func parse(md string) []*node {
	r := reader{source: []byte(md), left: maxNodes}
	list := r.children(markdown.Parse(text.NewReader(r.source)), 0)
	if r.left < 0 {
		return nil
	}
	return list
}

// children returns the nodes below one. Those without a form of their own are replaced by theirs.
func (r *reader) children(of ast.Node, depth int) (list []*node) {
	for n := of.FirstChild(); n != nil && r.left >= 0; n = n.NextSibling() {
		r.left--
		made := r.node(n)
		switch {
		case made == nil || depth > maxInline && n.Type() == ast.TypeInline && made.text == "" && made.kind != newline:
			list = append(list, r.children(n, depth)...)
			continue
		case n.Type() == ast.TypeInline:
			made.children = r.children(n, depth+1)
			if made.kind == code {
				made.children = nil
			}
		case made.kind != pre:
			made.children = r.children(n, depth)
		}
		list = append(list, made)
		if t, ok := n.(*ast.Text); ok && (t.SoftLineBreak() || t.HardLineBreak()) {
			list = append(list, &node{kind: newline})
		}
	}
	return list
}

// node returns one without its children; nil: it has no form of its own.
func (r *reader) node(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.Paragraph, *ast.TextBlock:
		return &node{kind: paragraph}
	case *ast.Heading:
		return &node{kind: heading, number: n.Level}
	case *ast.List:
		if n.IsOrdered() {
			return &node{kind: numbers, number: n.Start}
		}
		return &node{kind: bullets}
	case *ast.ListItem:
		return &node{kind: item}
	case *ast.Blockquote:
		return &node{kind: quote}
	case *ast.ThematicBreak:
		return &node{kind: rule}
	case *ast.FencedCodeBlock:
		return &node{kind: pre, text: r.lines(n), language: language(string(n.Language(r.source)))}
	case *ast.CodeBlock:
		return &node{kind: pre, text: r.lines(n)}
	case *extast.Table:
		return &node{kind: table}
	case *extast.TableHeader, *extast.TableRow:
		return &node{kind: row}
	case *extast.TableCell:
		return &node{kind: cell}
	case *extast.TaskCheckBox:
		if n.IsChecked {
			return &node{text: "☑ "}
		}
		return &node{text: "☐ "}
	case *extast.Strikethrough:
		return &node{kind: strike}
	case *ast.Emphasis:
		if n.Level > 1 {
			return &node{kind: bold}
		}
		return &node{kind: italic}
	case *ast.CodeSpan:
		return &node{kind: code, text: r.raw(n)}
	case *ast.Link:
		return linkTo(unescape(n.Destination), "")
	case *ast.Image:
		to, label := unescape(n.Destination), ""
		if n.FirstChild() == nil {
			label = to
		}
		return linkTo(to, label)
	case *ast.AutoLink:
		label := string(n.Label(r.source))
		if n.AutoLinkType == ast.AutoLinkEmail {
			return linkTo("mailto:"+label, label)
		}
		return linkTo(label, label)
	case *ast.Text:
		if n.IsRaw() {
			return &node{text: string(n.Segment.Value(r.source))}
		}
		return &node{text: unescape(n.Segment.Value(r.source))}
	}
	return nil
}

// linkTo returns a link with a label of its own, or what remains of one that is not safe.
func linkTo(to, label string) *node {
	if to = safe(to); to == "" {
		if label == "" {
			return nil
		}
		return &node{text: label}
	}
	return &node{kind: link, to: to, text: label}
}

// maxLink is the longest link, in bytes.
const maxLink = 2048

// safe returns a link as it may be passed on; empty: it may not.
func safe(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > maxLink || strings.ContainsFunc(to, unicode.IsControl) {
		return ""
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return ""
		}
	case "mailto":
	default:
		return ""
	}
	return u.String()
}

// language returns the language of a block of code; empty where it is none.
func language(s string) string {
	if len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-#._", r))
	}) {
		return ""
	}
	return s
}

// lines returns a block of code.
func (r *reader) lines(n ast.Node) string {
	return strings.TrimRight(string(n.Lines().Value(r.source)), "\n")
}

// raw returns the text of a code span; lines of it are joined.
func (r *reader) raw(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(r.source))
		}
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// unescape returns what a piece of the source shows: without backslashes, with its references
// resolved. The library does both in one pass, for HTML only.
func unescape(source []byte) string {
	var b strings.Builder
	w := bufio.NewWriter(&b)
	gmhtml.DefaultWriter.Write(w, source)
	_ = w.Flush() // to memory
	return clean(html.UnescapeString(b.String()))
}
