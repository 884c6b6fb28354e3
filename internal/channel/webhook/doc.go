// Package webhook delivers messages by HTTPS POST to a URL of the operator's
// choice, decides which addresses such a request may reach, and reads the messages that
// programs post to an account ([Verify], [Read]), and the files that those name ([Fetcher]).
//
// Promises:
//   - Every request opens a new connection, and the address is checked after name resolution,
//     at the socket: a name that resolves to another address the second time,
//     an IP written in an odd form and each redirect meet the same check.
//   - Nothing is sent through a proxy of the environment, and net/http repeats
//     nothing on its own: a repeat that does not carry the duplicate flag would
//     break the contract with the receiver.
//   - A signed message reaches only the host it was signed for.
//   - A file is fetched from a public address, whatever allow_private says: that is about the
//     address that the operator chose, and files are named by the programs that post.
//   - The URL's path and query, which often hold a token, and the secret are in
//     no error.
//
// The receiver's side of the contract:
//
//	POST <url>
//	Idempotency-Key: <key>            drop a key you have handled
//	X-TheClaw-Fence: deliver/a1=42    refuse a token lower than one seen
//	X-TheClaw-Signature: t=<unix seconds>,sha256=<hex HMAC of "<t>.<body>">
//	{"agent_id","thread_id","event_id","text","reply_context","key",
//	 "attempt","maybe_duplicate","created_at"}
//
// A message in parts has "part" (from 1) too, and "more" in all but the last.
//
// answered by any 2xx, whose id is the X-Message-Id header or "id" of a JSON
// body. What each other answer means is the table in [classify].
//
// It does not retry and does not wait.
package webhook
