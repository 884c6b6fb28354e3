package transcript

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/theclaw/agents/cmd/agentctl/internal/markdown"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

type kind int

const (
	you kind = iota
	reply
	thought
	tool
	note
	problem
	quoted
)

// entry is one thing on the screen.
type entry struct {
	kind kind
	body *markdown.Stream // what was said, thought or noted
	call Call             // of a tool
	open bool             // unfolded
	live bool             // not whole yet
	run  bool             // belongs to the run under way
	from time.Time        // of a thought
	took time.Duration

	// Of a reply that is said again after an interruption: what the body shows, until
	// said differs from it or is longer.
	held, said string

	// What it looks like, kept while nothing changes. A live entry is not kept.
	width int
	lines []string
}

// Call is a tool call.
type Call struct {
	ID, Name, Arguments string
	Summary             string // in one line; empty: there is none
	Output              string // while it runs
	Result              Result
	From                time.Time
	Took                time.Duration
	Done                bool
}

// Result is what came out of a tool.
type Result struct {
	Text string // to be shown
	Fail string // "" when it went well
}

// maxShown is how many lines of arguments and output an open tool has.
const maxShown = 200

// look is how the parts look; without colours only faint and bold are left.
type look struct {
	you, it, note, good, bad, faint, bold lipgloss.Style
	apart                                 bool // emoji are shown as their parts
}

// line is a text of others in one line.
func (l look) line(text string) string {
	if text = screen.Line(text); l.apart {
		text = markdown.Apart(text)
	}
	return text
}

// newLook has colors that can be read on the background: see package markdown.
func newLook(color, light bool) look {
	l := look{faint: lipgloss.NewStyle().Faint(true), bold: lipgloss.NewStyle().Bold(true)}
	l.note, l.you, l.it = l.faint, l.bold, l.bold
	if !color {
		return l
	}
	l.bad = lipgloss.NewStyle().Foreground(lipgloss.Red)
	if light {
		l.you = lipgloss.NewStyle().Foreground(lipgloss.Blue).Bold(true)
		return l
	}
	l.you = lipgloss.NewStyle().Foreground(lipgloss.Cyan).Bold(true)
	l.it = lipgloss.NewStyle().Foreground(lipgloss.Green).Bold(true)
	l.good = lipgloss.NewStyle().Foreground(lipgloss.Green)
	return l
}

// at is the entry in lines of a width, in two parts so that a long reply that
// grows is not copied at each look.
func (e *entry) at(width int, now time.Time, l look) (lines, more []string) {
	if !e.live && e.width == width && e.lines != nil {
		return e.lines, nil
	}
	switch e.kind {
	case tool:
		lines = e.tool(width, now, l)
	case thought:
		lines = e.thought(width, now, l)
	default:
		lines, more = e.body.Lines(width)
		if !e.live {
			lines, more = append(lines[:len(lines):len(lines)], more...), nil
		}
		if e.kind == you {
			lines = append([]string{""}, lines...)
		}
	}
	e.width, e.lines = width, lines
	return lines, more
}

func (e *entry) thought(width int, now time.Time, l look) []string {
	mark, what := "▸ ", "thought for "
	if e.open {
		mark = "▾ "
	}
	took := e.took
	if e.live {
		what, took = "thinking for ", now.Sub(e.from)
	}
	title := l.faint.Render(mark + what + Span(took))
	if !e.open {
		return []string{title}
	}
	kept, open := e.body.Lines(width)
	lines := make([]string, 0, 1+len(kept)+len(open))
	return append(append(append(lines, title), kept...), open...)
}

func (e *entry) tool(width int, now time.Time, l look) []string {
	mark := "▸ "
	if e.open {
		mark = "▾ "
	}
	c := &e.call
	state, took := l.good.Render("ok"), c.Took
	switch {
	case !c.Done:
		state, took = "running", now.Sub(c.From)
	case c.Result.Fail != "":
		state = l.bad.Render(l.line(c.Result.Fail))
	}
	head, about := mark+l.line(c.Name)+" ", Gist(c.Arguments)
	if c.Summary != "" {
		head, about = mark, c.Summary
	}
	tail := " · " + state + " · " + Span(took)
	what := l.line(strings.TrimSpace(about))
	what = ansi.Truncate(what, max(width-lipgloss.Width(head)-lipgloss.Width(tail), 0), "…")
	title := l.faint.Render(head) + what + l.faint.Render(" · ") + state + l.faint.Render(" · "+Span(took))
	if !e.open {
		return []string{title}
	}
	lines := []string{title}
	lines = append(lines, block(Full(c.Arguments), width, l)...)
	out := c.Result.Text
	if !c.Done {
		out = c.Output
	}
	if out = strings.TrimRight(out, "\n"); out != "" {
		lines = append(lines, l.faint.Render("  ┆ ----"))
		lines = append(lines, block(out, width, l)...)
	}
	return lines
}

// block is a text under a tool: whole, but for what is beyond maxShown lines.
func block(text string, width int, l look) []string {
	all := strings.Split(strings.TrimRight(screen.Clean(text), "\n"), "\n")
	more := len(all) - maxShown
	body := markdown.New(markdown.Style{Plain: true, Faint: true, Apart: l.apart, Edge: "  ┆ "})
	body.Write(strings.Join(all[:min(len(all), maxShown)], "\n"))
	kept, open := body.Lines(width)
	lines := append(kept[:len(kept):len(kept)], open...)
	if len(lines) > maxShown {
		lines = lines[:maxShown]
		more = max(more, 1)
	}
	if more > 0 {
		lines = append(lines, "  ┆ … and more; 'agentctl run stream' and 'agentctl explain' have it")
	}
	return lines
}

// Span is a duration with two or three digits.
func Span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
