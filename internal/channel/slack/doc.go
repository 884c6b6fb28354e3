// Package slack speaks the API of Slack for one account, in both directions: events over Socket
// Mode, everything else over HTTPS.
//
//	envelope --> Intake.Take --> stored --> acknowledgement of the envelope
//	Message --> mrkdwn, at most 4,000 characters --> rate --> chat.postMessage
//
// Promises:
//   - An envelope is acknowledged only when its message is stored. One that the platform sends again
//     meanwhile is acknowledged together with it, and is not taken again.
//   - When the platform announces the end of a connection, the next one is open before it ends.
//   - Our own rate is one message a second for a conversation. A limit that the platform states
//     delays its conversation alone.
//   - Each message has its delivery key in its metadata. One that may have been sent is looked for
//     there before it is sent again ([channel.Query]).
//   - A text mentions no person and no group.
//   - Tokens are sent to the API and, for files, to files.slack.com alone, and are in no error.
//     Redirects are not followed, and nothing is sent through a proxy of the environment.
//   - After an outage, what was written meanwhile is read from the history, before what comes over
//     the new connection: at most 24 hours, 200 conversations and threads in which the account
//     received a message within 7 days, 500 messages of one and 5,000 in all, for 2 minutes.
//
// An event names who began the thread of a message, but not with which text: that is read with the first
// message of each thread, within 3 seconds, for [channel.ReplyTo]. If it cannot be read, only the quotation
// is missing.
//
// What the platform cannot do: it stops repeating an envelope after some minutes, so edits and
// pressed buttons of a longer outage do not arrive. Several programs with the same app token share
// the events: each event reaches one of them.
//
// The protocol is written by hand, as it is for Telegram: slack-go/slack closes its connection
// before it opens the next one, tries again without end, and adds 1 MB to each program.
//
// It does not try again and stores nothing: the gateway starts a [channel.Receiver] again, the
// deliverer a send.
package slack
