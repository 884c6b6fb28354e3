// Package model defines the calls of a language model: a request, a stream of
// deltas, one complete response or one classified error.
//
// What it promises:
//   - A [Response] is a complete answer. A stream that ended without the
//     provider's finish reason is an [*Error] of class [CutStream], whatever
//     text had already arrived.
//   - Every error of a [Driver] is an [*Error]; its class alone says whether
//     another try may help ([Error.Recoverable]) and whether this one is
//     charged to the message ([Error.CountsTry]).
//   - Tool calls have ids that are unique in the conversation and the same for
//     the same answer to the same request, even when the provider sends none.
//   - Every text of a Response, of its deltas and of an error is valid UTF-8 and bounded
//     ([Receive]); what was changed is in [Response].Notes.
//   - A tool call that cannot be made has a Problem, which is its result; it can be sent
//     back to every provider.
//   - No key, header or URL of a provider appears in an error.
//
// What it does not do: it never repeats a call (the turn journal counts the
// tries; package retry decides how long to wait before the next one), runs no
// tool, builds no prompt and stores nothing.
//
// Packages below this one:
//
//	offline    the built-in deterministic driver, which is no model and says so
//	openai     chat completions of any OpenAI-compatible endpoint
//	pai        the pai program, which runs tools itself
//	anthropic  the Messages API, with signed thinking and prompt caching
//	wire       what the network drivers have in common: errors, time limits
//	provider   which providers exist on this machine, and which is the default
//	retry      one try at a time: breaker, backoff, retry budget
//	modeltest  a scripted provider on loopback
//	drivertest the suite every network driver passes against it
//
// Units: sizes in tokens are int64 counts, times are time.Duration.
package model
