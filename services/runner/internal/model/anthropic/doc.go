// Package anthropic is the driver for the Messages API of Anthropic and of the
// endpoints that are compatible with it, over the official SDK.
//
// What it promises: exactly one HTTP request per Generate (the SDK's retries
// are off); deltas are handed on as they arrive; an answer counts as complete
// only after its stop reason and a clean end; all failures are *model.Error by
// the table of [model.ClassOf], and the key appears in none. Nothing is read from
// the environment.
//
// Thinking blocks are kept with their signatures, in the order in which the
// model gave them, and go back with the message they belong to
// ([model.Message].Replay): the API refuses a tool round whose thinking is
// missing or changed. Where they got lost, because another provider answered
// the round before, thinking is left off for the request.
//
// The prompt is cached by the provider up to the end of what stays the same:
// one mark after tools and system prompt, one after the newest message, so that
// each tool round reads what the previous one has written.
//
//	stop reason                      becomes
//	end_turn, stop_sequence, others  FinishStop
//	tool_use                         FinishToolCalls
//	max_tokens, model_context_...    FinishLength
//	refusal                          an error of class Policy
//
// Ids of calls that another provider gave are sent in the characters that the API takes;
// different ids stay different.
//
// Usage: Input counts everything that was read, also from and into the cache,
// as OpenAI's does; the API itself reports the three apart.
//
// What it does not do: no retries, no fallback, no images but those of tool results, no server tools.
package anthropic
