// Package discord speaks the API of Discord, version 10, for one account, in both directions.
//
//	gateway socket --> position --> Intake.Take --> stored --> the kept session and sequence
//	Message --> the limit of its channel --> POST /channels/ID/messages
//
// Promises:
//   - What is kept of a session is the sequence up to which everything is stored. A connection that
//     ended, in this process or an earlier one, is resumed from there: the platform sends again
//     what came after it. What is on its way is not taken again.
//   - The socket is left without a closing handshake, which would end the session.
//   - A message that is sent again within some minutes is dropped by the platform, by its nonce; a
//     later repeat of one that may have arrived looks for it first ([channel.Query]).
//   - No message notifies anyone: mentions are shown, and are off. Links show no preview.
//   - A message whose channel the platform cannot show at the moment waits until it can, with those
//     behind it in the channel: without the channel it is not known who may write it.
//   - A limit that the platform states delays its channel alone.
//   - Files come from the hosts of the platform alone, and their bytes are counted. The token goes
//     to the API and the gateway alone. Redirects are not followed, and no proxy of the environment
//     is used.
//   - A button that is pressed is a message with its command; it is confirmed when that is stored.
//   - What was written between the end of a session that cannot be resumed and the next one is read
//     from the histories of the conversations that are known (package history).
//
// What is lost: such messages in a conversation that is not known, and changes of messages meanwhile. A
// session ends when no connection was open for some minutes.
//
// It does not try again for long and stores nothing: the gateway starts a [channel.Receiver] again,
// the deliverer a send. The texts of the platform are Markdown, as those of agents are: they go
// through as they are written.
package discord
