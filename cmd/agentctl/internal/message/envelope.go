// Package message sends a message to an agent and waits for the answer: the envelope of
// a message typed at the console, its push with an idempotency key, and the wait for the
// outcome. It implements the command `agentctl send`; the conversation is in package
// chat.
//
// It promises that one message is pushed once, however often the push is retried because
// the registry was unavailable.
package message

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
)

// NewKey makes an idempotency key: a ULID, 26 characters that sort by time.
func NewKey() string { return ulid.Make().String() }

// Check refuses a content that no registry would take, before anything is sent.
// what names it in the error.
func Check(what, content string) error {
	if len(content) > thread.MaxEvent {
		return tooLarge(what, len(content))
	}
	if !utf8.ValidString(content) {
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, what+" is not valid UTF-8", "convert it to UTF-8, with iconv for example")
	}
	return nil
}

// CheckText is Check for a text that still gets its envelope.
func CheckText(content, text string) error {
	if strings.TrimSpace(text) == "" {
		return fault.Usage("the message is empty", "give a text, or - to read it from standard input")
	}
	if err := Check("the message", text); err != nil { // the envelope would hide bad UTF-8
		return err
	}
	return Check("the message with its envelope", content)
}

func tooLarge(what string, size int) error {
	return fault.New(codes.FailedPrecondition, fault.EventTooLarge,
		fmt.Sprintf("%s has at least %d bytes, more than the limit of %d (1 MiB)", what, size, thread.MaxEvent),
		"put the text into a file of the agent's workdir and name the file in the message")
}
