package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
)

// maxAnswer is the longest answer in bytes.
const maxAnswer = 8 << 10

// Confirm asks a question whose answer is yes, or else no.
func Confirm(ctx context.Context, e *command.Env, question string) (bool, error) {
	answer, err := Ask(ctx, e, question+" [y/N] ")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// answer is a line that was typed, or why there is none.
type answer struct {
	text string
	err  error
}

// Ask asks for a line of at most 8 KiB; standard input and output are a terminal. The terminal is read byte by byte, so that what was typed ahead
// is left to the chat.
func Ask(ctx context.Context, e *command.Env, question string) (string, error) {
	fmt.Fprint(e.Err, question)
	in, _ := e.Terminal()
	text, err := wait(ctx, func() answer {
		var text []byte
		for one := make([]byte, 1); ; {
			n, err := in.Read(one)
			switch {
			case n == 1 && one[0] == '\n':
				return answer{text: strings.TrimSpace(string(text))}
			case n == 1 && len(text) < maxAnswer:
				text = append(text, one[0])
			case err != nil:
				return answer{err: err}
			}
		}
	})
	if ctx.Err() != nil {
		fmt.Fprintln(e.Err) // the line of the question has no end yet
	}
	return text, err
}

// Hidden asks for a line that is not shown. The terminal is as it was when it returns.
func Hidden(ctx context.Context, e *command.Env, question string) (string, error) {
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
		return "", fault.Wrap(fault.New(codes.Canceled, fault.Canceled, "interrupted before the question was answered", "run the command again"), ctx.Err())
	}
}
