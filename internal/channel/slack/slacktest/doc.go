// Package slacktest serves the API of Slack and its Socket Mode on loopback, for tests and for
// trying out a bot without a workspace.
//
//	people --> Say, Edit, Press --> events --> socket --> bot
//	people <-- Messages, Wait   <-- conversations <-- chat.postMessage, chat.update ... <-- bot
//
// It answers in the forms of Slack's documentation, and promises to refuse what the platform
// refuses: wrong tokens, JSON for methods that take forms only, conversations and messages that it
// does not know, texts of more than 4,000 characters, blocks and metadata of a wrong form, a ticket
// of a socket that was used before. An envelope that is not acknowledged in time comes again, with
// another id and a count. On request it fails ([Fault]).
//
// It keeps nothing on disk, and has no limits of rate but those of a fault.
package slacktest
