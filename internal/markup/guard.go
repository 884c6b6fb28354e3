package markup

import (
	"bytes"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Bounds of what the parser does. Without them some texts cost it the square of their length:
// 200 KB of `[a](` take 17 s.
const (
	maxDepth      = 16       // lists and quotes in each other; further markers are text
	maxBlock      = 32 << 10 // bytes of a block that may have links
	maxBrackets   = 200      // `]` of a block; what follows has no links
	allBrackets   = 4_000    // the same of a text
	maxDelimiters = 1_000    // runs of `*`, `_` and `~` of a block; what follows has no emphasis
	maxColumns    = 64       // of a table
	maxCells      = 10_000   // the same; a larger one is text
)

// markdown is CommonMark with tables, strikethrough and tasks, without HTML and link reference
// definitions. It keeps no state between texts.
var markdown = parser.NewParser(
	parser.WithBlockParsers(
		util.Prioritized(parser.NewSetextHeadingParser(), 100),
		util.Prioritized(parser.NewThematicBreakParser(), 200),
		util.Prioritized(nested{parser.NewListParser()}, 300),
		util.Prioritized(parser.NewListItemParser(), 400),
		util.Prioritized(parser.NewCodeBlockParser(), 500),
		util.Prioritized(parser.NewATXHeadingParser(), 600),
		util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
		util.Prioritized(nested{parser.NewBlockquoteParser()}, 800),
		util.Prioritized(parser.NewParagraphParser(), 1000),
	),
	parser.WithInlineParsers(
		util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
		util.Prioritized(parser.NewCodeSpanParser(), 100),
		util.Prioritized(links{parser.NewLinkParser()}, 200),
		util.Prioritized(parser.NewAutoLinkParser(), 300),
		util.Prioritized(delimiters{parser.NewEmphasisParser()}, 500),
		util.Prioritized(delimiters{extension.NewStrikethroughParser()}, 500),
	),
	parser.WithParagraphTransformers(util.Prioritized(tables{extension.NewTableParagraphTransformer()}, 200)),
	parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
)

// nested opens no list and no quote where there are too many around it.
type nested struct{ parser.BlockParser }

// Open implements [parser.BlockParser].
func (n nested) Open(parent ast.Node, r text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for p := parent; p != nil; p = p.Parent() {
		if k := p.Kind(); k == ast.KindList || k == ast.KindBlockquote {
			depth++
		}
	}
	if depth >= maxDepth {
		return nil, parser.NoChildren
	}
	return n.BlockParser.Open(parent, r, pc)
}

// usage is what was used of the bounds of a block, and of a text.
type usage struct {
	block                ast.Node
	long                 bool
	brackets, delimiters int
	all                  int // brackets of the text
}

var usageKey = parser.NewContextKey()

func usageOf(block ast.Node, pc parser.Context) *usage {
	u := pc.ComputeIfAbsent(usageKey, func() any { return new(usage) }).(*usage)
	if u.block != block {
		*u = usage{block: block, all: u.all}
		if lines := block.Lines(); lines.Len() > 0 {
			u.long = lines.At(lines.Len()-1).Stop-lines.At(0).Start > maxBlock
		}
	}
	return u
}

// links finds no link beyond the bounds.
type links struct{ parser.InlineParser }

// Parse implements [parser.InlineParser].
func (l links) Parse(block ast.Node, r text.Reader, pc parser.Context) ast.Node {
	u := usageOf(block, pc)
	if u.long || u.brackets >= maxBrackets || u.all >= allBrackets {
		return nil
	}
	if r.Peek() == ']' {
		u.brackets, u.all = u.brackets+1, u.all+1
	}
	return l.InlineParser.Parse(block, r, pc)
}

// CloseBlock implements [parser.CloseBlocker].
func (l links) CloseBlock(block ast.Node, r text.Reader, pc parser.Context) {
	l.InlineParser.(parser.CloseBlocker).CloseBlock(block, r, pc)
}

// delimiters finds no emphasis beyond the bounds, and none between digits: in answers of models a
// star there multiplies, as for the chat of agentctl.
type delimiters struct{ parser.InlineParser }

// Parse implements [parser.InlineParser].
func (d delimiters) Parse(block ast.Node, r text.Reader, pc parser.Context) ast.Node {
	u := usageOf(block, pc)
	if u.delimiters >= maxDelimiters {
		return nil
	}
	u.delimiters++
	line, _ := r.PeekLine()
	after := bytes.TrimLeft(line, string(line[:1]))
	if len(after) > 0 && isDigit(rune(after[0])) && isDigit(r.PrecendingCharacter()) {
		return nil
	}
	return d.InlineParser.Parse(block, r, pc)
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

// tables leaves large tables as text: each row has as many cells as the first, even an empty one.
type tables struct{ parser.ParagraphTransformer }

// Transform implements [parser.ParagraphTransformer].
func (t tables) Transform(p *ast.Paragraph, r text.Reader, pc parser.Context) {
	columns, lines := 0, p.Lines()
	for i := range lines.Len() {
		line := lines.At(i)
		columns = max(columns, 1+bytes.Count(line.Value(r.Source()), []byte{'|'}))
	}
	if columns <= maxColumns && columns*lines.Len() <= maxCells {
		t.ParagraphTransformer.Transform(p, r, pc)
	}
}
