// Package offline is the built-in deterministic driver: for a first start
// without a key, for tests, drills and benchmarks. Its answers say that it is no
// model.
//
// What it promises: the answer depends on the request alone (the last user
// message and what follows it), uses no network, disk or randomness, streams
// word by word and counts usage by model.EstimateTokens. It understands one
// instruction per user message, listed in [Help]; any other text is echoed
// behind "offline: ". An answer that was begun is continued.
//
//	last user message --run, remember, send--> tool call --result--> reply
//	                  --tools: N-------> tool call --result--> ... N times --> reply
//	                  --slow-----------> waits ----------------------------> reply
//	                  --fail-----------> error of that class
//	                  --anything else--------------------------------------> reply
//
// What it does not do: it reads no system prompt, follows no other words, and
// never calls a tool that the request does not offer.
package offline

import (
	"context"
	"strings"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Name is the provider's name, and the name of its only model.
const Name = "offline"

// ContextWindow is the window it claims, in tokens.
const ContextWindow = 128_000

// Tool is the one tool it calls to run something, SendTool the one to send something.
const (
	Tool     = "bash_exec"
	SendTool = "message_send"
)

// Help is what it says about itself.
const Help = `I am the built-in offline model: no language model, only a few fixed answers.
One instruction per message:
  run: CMD         run CMD with bash_exec and report its output
  call: NAME ARGS  call the tool NAME with ARGS, a JSON object, and report its
                   result; more lines of this form are further calls, in order
  remember: TEXT   append TEXT to notes.md in the working directory
  recall           list your earlier messages that I can see
  say: TEXT        answer TEXT and nothing else
  send: TEXT       send TEXT with message_send, then answer TEXT
  slow: SECONDS    wait that long, then answer
  tools: N         make N rounds of tool calls, then answer
  fail: KIND [N]   fail as a provider does; with N only the first N tries.
                   KIND: rate-limit, unavailable, unreachable, cut, bad, auth,
                   config, context, policy, panic
  help             this text
Anything else is echoed. For real answers configure a provider: set
OPENAI_API_KEY or write providers.yaml in the home directory.`

// Driver is the offline model. The zero value is ready.
type Driver struct{}

var _ model.Driver = Driver{}

// Name is "offline".
func (Driver) Name() string { return Name }

// Generate answers the last user message.
func (Driver) Generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return model.Response{}, ended(err)
	}
	out, err := answer(ctx, req)
	if err != nil {
		return model.Response{}, err
	}
	if out.tool == "" {
		out.text = behind(req.Messages, out.text)
	}
	response := model.Response{Text: out.text, Model: Name, ProviderID: "offline", FinishReason: model.FinishStop}
	for word := range strings.SplitAfterSeq(out.text, " ") {
		if err := ctx.Err(); err != nil {
			return model.Response{}, ended(err)
		}
		if word == "" {
			continue
		}
		if response.FirstToken == 0 {
			response.FirstToken = max(time.Since(start), 1)
		}
		if onDelta != nil {
			onDelta(model.Delta{Text: word})
		}
	}
	response.Usage = model.Usage{Input: model.EstimateRequest(req), Output: model.EstimateTokens(out.text)}
	if out.tool != "" {
		call := out.call(req)
		response.ToolCalls, response.FinishReason = call, model.FinishToolCalls
		response.Usage.Output += model.EstimateTokens(string(call[0].Arguments))
	}
	response.Duration = max(time.Since(start), response.FirstToken)
	return response, nil
}

// behind is the answer without what was sent of it before: the request then ends with that, and a note.
func behind(messages []model.Message, text string) string {
	n := len(messages)
	if n < 2 || messages[n-1].Role != model.RoleSystem || messages[n-2].Role != model.RoleAssistant || len(messages[n-2].ToolCalls) > 0 {
		return text
	}
	return strings.TrimPrefix(text, messages[n-2].Text)
}

// ended is the error of a context that is over.
func ended(err error) error {
	e := model.AsError(err)
	e.Message = "offline: " + e.Message
	return e
}
