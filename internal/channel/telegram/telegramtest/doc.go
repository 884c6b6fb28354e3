// Package telegramtest serves the Bot API of Telegram on loopback, for tests and for trying out
// a bot without an account.
//
//	people --> Say, Edit, Press --> queue --> getUpdates --> bot
//	people <-- Messages, Wait   <-- chats <-- sendMessage, editMessageText ... <-- bot
//
// It answers in the forms of the Bot API's documentation, and promises to refuse what the platform
// refuses: a wrong token, two programs that receive, chats, topics and messages that it does not
// know, texts of more than 4,096 UTF-16 units, entities beyond their text, commands of buttons
// with more than 64 bytes, a parse_mode (which is never used here). On request it fails ([Fault]).
// It counts the updates that were acknowledged before they were returned, and those that it
// returned again after that.
//
// It keeps nothing on disk, and has no limits of rate but those of a fault. What it does is also
// reached over HTTP (control.go), below /control/.
package telegramtest
