// Package retry makes one try of a model call and reports what to do next; it
// never makes a second one itself, because tries are persistent and belong to
// the turn journal.
//
// What it promises (RELIABILITY.md section 5, Retry):
//   - One circuit breaker per provider. Three calls in a row that could not
//     reach it open the breaker; then nothing is sent but one probe each 30 s,
//     and no try is charged.
//   - The wait before the next try has full jitter within 1, 2, 4 s (by
//     Request.Try), and is never shorter than the provider's Retry-After, up
//     to 60 s.
//   - One retry budget for the process: further tries may make up 10 % of the
//     calls of the last minute, and 10 tries in any case. A try beyond it is
//     not sent and not charged.
//
// The breaker of a provider:
//
//	closed --3 x Unreachable in a row--> open --30 s--> half open
//	  ^                                   ^                |  one probe at a time
//	  +---- the probe reached it ---------+----------------+ it did not
//
// Any answer of the provider, also a 500 or a refusal, proves that it was
// reached. A call that our own side ended before the first delta proves
// nothing; as a probe it leaves the breaker open.
//
// What it does not do: it counts no tries (max_attempts) and applies no turn
// limit (600 s) and no retry.max_age; the turn does both before each Try.
package retry
