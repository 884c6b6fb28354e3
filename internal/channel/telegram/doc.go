// Package telegram speaks the Bot API of Telegram for one account, in both directions.
//
//	getUpdates --> window --> Intake.Take --> stored --> the offset of the next getUpdates
//	Message --> parts of at most 4,096 UTF-16 units --> rate --> sendMessage
//
// Promises:
//   - An update is acknowledged only when it and all before it are stored: the offset is one
//     above the last update of which this is true. What is on its way is not taken again.
//   - Our own rate is below the limits of the platform: 30 messages a second, one a second for a
//     chat, 20 a minute for a group. A limit that the platform states delays its chat alone.
//   - Formatting is sent as entities, never as markup that the platform parses; where it refuses
//     them, the text is sent without them in the same attempt.
//   - The token, which is part of each address, is in no error: they hold the method and the
//     status of the answer.
//   - Files come from the host of the Bot API alone, and their bytes are counted.
//   - Redirects are not followed, and nothing is sent through a proxy of the environment.
//
// What the platform cannot do: it drops no repeat of a message, so one that was interrupted
// while it was sent may arrive twice ([channel.None]).
//
// It does not try again and stores nothing: the gateway starts a [channel.Receiver] again, the
// deliverer a send.
package telegram
