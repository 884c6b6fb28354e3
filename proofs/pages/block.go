package pages

import (
	"fmt"
	"strings"
)

// Kind says what happens with a block.
type Kind string

// The kinds, as they stand in the info string; Setup stands in a comment.
const (
	Run   Kind = "run"
	Fails Kind = "fails"
	Heavy Kind = "heavy"
	Shown Kind = "shown"
	Setup Kind = "setup"
)

// A Block is a block of commands.
type Block struct {
	Line     int // of its first line in the page, from 1
	Kind     Kind
	Reason   string // of Heavy and Shown
	Commands string
	Output   []string // the lines that are expected, if Compared
	Compared bool
}

// languages are those of command blocks.
var languages = map[string]bool{"sh": true, "bash": true, "shell": true, "console": true}

// setupMark begins a comment with commands.
const setupMark = "<!-- run"

// Parse reads the blocks of commands of a page in their order. The error names the line of
// a block that has no mark, a wrong one, or no end.
func Parse(page string) ([]Block, error) {
	lines := strings.Split(page, "\n")
	var blocks []Block
	last := -1 // the block that a block of text belongs to
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		fence := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case line == setupMark:
			end := find(lines, i+1, "-->")
			if end < 0 {
				return nil, fmt.Errorf("line %d: the comment has no end", i+1)
			}
			blocks = append(blocks, Block{Line: i + 1, Kind: Setup, Commands: join(lines[i+1 : end])})
			i, last = end, -1
		case len(fence) >= 3:
			end := find(lines, i+1, fence)
			if end < 0 {
				return nil, fmt.Errorf("line %d: the block has no end", i+1)
			}
			body := unindent(lines[i+1:end], lines[i])
			language, mark, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, fence)), " ")
			if !languages[language] {
				if language == "text" && last >= 0 {
					blocks[last].Output, blocks[last].Compared = body, true
				}
				i, last = end, -1
				continue
			}
			b, err := block(strings.TrimSpace(mark))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			b.Line, b.Commands = i+1, join(body)
			if language == "console" {
				b.Commands, b.Output = console(body)
				b.Compared = len(b.Output) > 0
			}
			blocks = append(blocks, b)
			i, last = end, len(blocks)-1
		case line != "":
			last = -1
		}
	}
	return blocks, nil
}

// block reads a mark.
func block(mark string) (Block, error) {
	kind, reason, hasReason := strings.Cut(mark, ":")
	b := Block{Kind: Kind(kind), Reason: strings.TrimSpace(reason)}
	switch b.Kind {
	case Run, Fails:
		if hasReason {
			return b, fmt.Errorf("the mark %s has no reason", kind)
		}
	case Heavy, Shown:
		if b.Reason == "" {
			return b, fmt.Errorf("the mark %s needs a reason: write `sh %s: REASON`", kind, kind)
		}
	case Setup:
		return b, fmt.Errorf("the mark %q is none: write the commands into a comment %q", mark, setupMark)
	default:
		return b, fmt.Errorf("the mark %q is none: write `sh run`, `sh fails`, `sh heavy: REASON` or `sh shown: REASON`", mark)
	}
	return b, nil
}

// console divides a block of commands after "$ ", which "> " continues, and their output.
func console(body []string) (commands string, output []string) {
	var typed []string
	for _, line := range body {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed = append(typed, command)
		} else if more, ok := strings.CutPrefix(line, "> "); ok && len(typed) > 0 {
			typed = append(typed, more)
		} else {
			output = append(output, line)
		}
	}
	return join(typed), output
}

// find is the first line from i on that is text, or -1.
func find(lines []string, i int, text string) int {
	for ; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == text {
			return i
		}
	}
	return -1
}

// unindent removes from lines the indentation of the fence before them, which a block in a list has.
func unindent(lines []string, fence string) []string {
	indent := fence[:len(fence)-len(strings.TrimLeft(fence, " "))]
	plain := make([]string, len(lines))
	for i, l := range lines {
		plain[i] = strings.TrimPrefix(l, indent)
	}
	return plain
}

func join(lines []string) string { return strings.Join(lines, "\n") + "\n" }
