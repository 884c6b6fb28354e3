// Package xgw delivers messages through the external xgw program: one process
// for each message, started as
//
//	xgw send --channel C --peer P --session S --json      text on stdin
//
// Promises:
//   - No shell, and no word of the text in the argument vector: quotes,
//     newlines and a leading dash arrive as they are. xgw trims the ends.
//   - The program sees PATH, HOME and XGW_CONFIG of the caller's environment
//     and, for gateways that understand them, THECLAW_DELIVERY_KEY,
//     THECLAW_ATTEMPT, THECLAW_MAYBE_DUPLICATE and THECLAW_FENCE; nothing else.
//   - It and what it starts are killed when ctx ends, when the time is over, and when this
//     process dies, however it does; Send returns only after they have ended.
//   - What the program has reported as sent is sent, whatever exit status follows. When
//     it was killed or crashed before it reported anything, the send is in doubt.
//   - At most 64 KiB of its output is kept.
//
// xgw takes no delivery key and its exit status does not separate transient
// from permanent: no failure is known to be permanent. So every failure it
// reports counts an attempt, the third of which is the last; only a program
// that cannot be started makes the channel Unavailable.
//
// The session option is --session, in later versions --conversation. The
// program is asked (xgw send --help) the first time it refuses the option, not
// before: a refused option has sent nothing, so asking late costs nothing. The
// answer holds for that file of the program in the whole process; an upgrade is
// another file and is asked again.
package xgw
