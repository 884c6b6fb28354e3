// Package retry makes one try of a model call and reports what to do next; it
// never makes a second one itself, because tries are persistent and belong to
// the turn journal.
//
// What it promises (docs/spec/reliability.md section 5, Retry):
//   - A provider that is unavailable is waited for: 429, 5xx, a timeout or a broken
//     connection before the answer, and one that cannot be reached. Such a try
//     is not charged. The wait has full jitter within 1, 2, 4, ..., 60 s (by
//     Request.Away), and is never shorter than the provider's Retry-After, up to
//     60 s.
//   - One circuit breaker per provider. Three such calls in a row open it; then
//     nothing is sent but one probe each 30 s, however many messages wait, and
//     none before the Retry-After. They learn at once that it is closed again.
//   - Once a piece of the answer arrived, what ends it is CutStream: charged, with
//     full jitter within 1, 2, 4 s (by Request.Try), as other failures are.
//   - One retry budget for the process: charged further tries may make up 10 % of
//     the calls of the last minute, and 10 tries in any case. A try beyond it is
//     not sent and not charged.
//
// The breaker of a provider:
//
//	closed --3 x unavailable in a row--> open: one probe each 30 s
//	  ^                                   |
//	  +---- a call was answered ----------+
//
// Any other answer of the provider, also a refusal, and the first piece of one, prove that
// it is available. A call that our own side ended before the first piece proves nothing. A
// probe that has had nothing when another call is answered hangs on an old connection:
// it is ended, and its message may try again at once.
//
// What it does not do: it counts no tries (max_attempts) and applies no turn
// limit (600 s) and no retry.max_age; the turn does both before each Try.
package retry
