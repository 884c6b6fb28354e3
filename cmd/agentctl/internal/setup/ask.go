package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// askProvider lists the known providers and asks for one; empty means none.
func askProvider(ctx context.Context, e *command.Env, known []*runner.Provider) (string, error) {
	e.Note("Which model provider shall answer?")
	for i, p := range known {
		model := "-"
		if len(p.GetModels()) > 0 {
			model = p.GetModels()[0].GetName()
		}
		e.Note("  %2d  %-12s %s", i+1, screen.Line(p.GetName()), screen.Line(model))
	}
	e.Note("Another name is a server of your own that speaks the API of OpenAI.")
	for {
		answer, err := line(ctx, e, "Number or name, Enter for none: ")
		if err != nil || answer == "" {
			return "", err
		}
		for i, p := range known {
			if answer == fmt.Sprint(i+1) {
				answer = p.GetName()
			}
		}
		err = provider.CheckName(answer)
		if err == nil && (slices.ContainsFunc(known, func(p *runner.Provider) bool { return p.GetName() == answer }) || strings.Trim(answer, "0123456789") != "") {
			return answer, nil
		}
		e.Note("%.80q is neither a number of the list nor a name", answer)
	}
}

// confirm asks a question whose answer is yes, or else no.
func confirm(ctx context.Context, e *command.Env, question string) (bool, error) {
	answer, err := line(ctx, e, question+" [y/N] ")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// answer is a line that was typed, or why there is none.
type answer struct {
	text string
	err  error
}

// line asks for a line. The terminal is read byte by byte, so that what was typed ahead
// is left to the chat.
func line(ctx context.Context, e *command.Env, question string) (string, error) {
	fmt.Fprint(e.Err, question)
	in, _ := e.Terminal()
	return wait(ctx, func() answer {
		var text []byte
		for one := make([]byte, 1); ; {
			n, err := in.Read(one)
			switch {
			case n == 1 && one[0] == '\n':
				return answer{text: strings.TrimSpace(string(text))}
			case n == 1 && len(text) < maxKey:
				text = append(text, one[0])
			case err != nil:
				return answer{err: err}
			}
		}
	})
}

// hidden asks for a line that is not shown. The terminal is as it was when it returns.
func hidden(ctx context.Context, e *command.Env, question string) (string, error) {
	fmt.Fprint(e.Err, question)
	in, _ := e.Terminal()
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("read the terminal: %w", err)
	}
	text, err := wait(ctx, func() answer {
		b, err := term.ReadPassword(int(in.Fd()))
		return answer{strings.TrimSpace(string(b)), err}
	})
	fmt.Fprintln(e.Err)
	return text, errors.Join(err, term.Restore(int(in.Fd()), before))
}

// wait returns when read has an answer, or ctx ends. A read of a terminal cannot be
// interrupted: after ctx ends, which is when the program does, it is left behind.
func wait(ctx context.Context, read func() answer) (string, error) {
	got := make(chan answer, 1)
	go func() { got <- read() }()
	select {
	case a := <-got:
		if errors.Is(a.err, io.EOF) {
			return "", fault.Usage("the input ended before all questions were answered", "answer them, or give --yes and flags")
		}
		return a.text, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
