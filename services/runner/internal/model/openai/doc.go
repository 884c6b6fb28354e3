// Package openai is the driver for chat completions of any OpenAI-compatible
// endpoint.
//
// What it promises: exactly one HTTP request per Generate; deltas are handed on as
// they arrive; an answer counts as complete only after the provider gave its finish
// reason and the body ended cleanly (some servers leave out the closing [DONE], so
// it is not demanded); all failures are *model.Error with the classes below; the key
// appears in no error. Nothing is read from the environment. What a server adds to
// an event, or sends in another type than OpenAI does, is left out.
//
//	before the answer          in the answer
//	refused, DNS, dial, TLS    Unreachable     connection lost, idle    CutStream
//	hung up, slow, 5xx, 408    Unavailable     body ends too early      CutStream
//	429                        RateLimited     error event              as its code says
//	429 or 402 without credit  Auth            not JSON, no choices     BadResponse
//	401, 403                   Auth            content filter           Policy
//	context length, 413        ContextTooLong  output limit             complete, FinishLength
//	content policy             Policy          over wire.MaxAnswerBytes complete, FinishLength
//	other 4xx, a redirect      Config          without end              TooLarge
//
// A tool call that cannot be made is part of a complete answer ([model.SealToolCalls]). A
// redirect is not followed.
//
// Thinking comes as reasoning_content or reasoning, or inline between tags
// (thinkSplitter); all three are Reasoning.
//
// What a provider adds to its tool calls as extra_content, such as Gemini's
// signatures, goes back with them.
//
// What it does not do: no retries, no fallback, no images but those of tool results, no audio parts, no
// speaker names (many endpoints refuse them).
package openai
