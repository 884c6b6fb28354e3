package web

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const (
	// maxElements is how many elements of a page are converted, and maxCells how many cells
	// of a table: a row that is shorter than the longest is filled up, so that 50,000
	// elements could become 600 million cells.
	maxElements = 20_000
	maxCells    = 20_000
	// maxIndent is how deep quotes and lists are nested in pages that are converted: each
	// level reads and copies all lines that are in it.
	maxIndent = 16
)

// markdown converts pages. Characters that Markdown knows are not escaped: a model reads
// them as they are, and the search for them takes time that grows with the square of their
// number. Cells are not padded: one long cell would make each row as long.
var markdown = converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(
	base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
	table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal)),
))

// article is the title and the text of a page: its article as Markdown, without an article
// its body, and plain text where the page cannot be converted in bounded time.
func article(page string, at *url.URL) (title, text string) {
	title, text, err := convert(page, at)
	if err != nil || strings.TrimSpace(text) == "" {
		return title, plain(page)
	}
	return title, text
}

// convert makes Markdown of a page. A panic of the libraries, which get what others wrote,
// is an error.
func convert(page string, at *url.URL) (title, text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("convert page: %v", p)
		}
	}()
	if strings.Count(page, "<") > 4*maxElements {
		return "", "", errTooLarge
	}
	doc, err := html.Parse(strings.NewReader(page)) // refuses more than 512 levels
	if err != nil {
		return "", "", err
	}
	body, title, err := prepare(doc)
	if err != nil {
		return title, "", err
	}
	parser := readability.NewParser()
	found, err := parser.ParseDocument(doc, at)
	if err == nil && found.Title() != "" {
		title = found.Title()
	}
	node := found.Node
	if err != nil || node == nil {
		node = body
	}
	out, err := markdown.ConvertNode(node, converter.WithDomain(at.Scheme+"://"+at.Host))
	return title, strings.TrimSpace(string(out)), err
}

var errTooLarge = errors.New("the page has too many elements")

// prepare finds body and title, removes what would make the text of a page much larger than
// the page, and refuses a page of too many elements.
func prepare(doc *html.Node) (body *html.Node, title string, err error) {
	elements := 0
	indents := map[*html.Node]int{} // of quotes and lists
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		elements++
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
			return a.Key == "colspan" || a.Key == "rowspan" || strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val[:min(len(a.Val), 16)])), "data:")
		})
		switch n.DataAtom {
		case atom.Body:
			body = n
		case atom.Title:
			if title == "" && n.FirstChild != nil {
				title = n.FirstChild.Data
			}
		case atom.Blockquote, atom.Ul, atom.Ol:
			for up := range n.Ancestors() {
				if indents[up] > 0 {
					indents[n] = indents[up]
					break
				}
			}
			if indents[n]++; indents[n] > maxIndent {
				err = errTooLarge
			}
		case atom.Table:
			if cells(n) > maxCells {
				err = errTooLarge
			}
		}
	}
	if elements > maxElements || body == nil {
		err = errTooLarge
	}
	return body, title, err
}

// cells is how many cells a table has when each row is as long as the longest. It looks at
// the rows of the table and not at those of tables in its cells.
func cells(t *html.Node) int {
	rows, widest := 0, 0
	for group := range t.ChildNodes() {
		for row := range group.ChildNodes() {
			if row.DataAtom != atom.Tr {
				continue
			}
			width := 0
			for cell := range row.ChildNodes() {
				if cell.Type == html.ElementNode {
					width++
				}
			}
			rows, widest = rows+1, max(widest, width)
		}
	}
	return rows * widest
}

// hidden are the elements whose text is not for people.
var hidden = []atom.Atom{atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Title}

// blocks are elements that begin a line.
var blocks = []atom.Atom{
	atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Br, atom.Dd, atom.Div, atom.Dl, atom.Dt, atom.Footer, atom.Form, atom.H1, atom.H2,
	atom.H3, atom.H4, atom.H5, atom.H6, atom.Header, atom.Hr, atom.Li, atom.Main, atom.Nav, atom.Ol, atom.P, atom.Pre, atom.Section, atom.Table, atom.Tr, atom.Ul,
}

// plain is the text of a page or of a piece of HTML, in one pass over its tokens: the time
// does not depend on how elements are nested.
func plain(page string) string {
	var b strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(page))
	skip := atom.Atom(0)
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			break
		}
		switch kind {
		case html.TextToken:
			if skip == 0 {
				b.Write(tokens.Text())
			}
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			name, _ := tokens.TagName()
			tag := atom.Lookup(name)
			switch {
			case kind == html.StartTagToken && skip == 0 && slices.Contains(hidden, tag):
				skip = tag
			case kind == html.EndTagToken && tag == skip:
				skip = 0
			case slices.Contains(blocks, tag):
				b.WriteByte('\n')
			}
		}
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
