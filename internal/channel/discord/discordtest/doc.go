// Package discordtest is the API and the gateway of Discord on loopback, for tests. It answers in
// the shapes of the platform and refuses what the platform refuses: another token, unknown channels,
// texts over 2,000 characters, nonces over 25, a session that it does not know, a sequence that it
// did not send, a second identification, a silent client.
//
// It stores in memory, knows the requests that a bot makes here, and has no permissions and no
// rate limits but those that a test sets ([Server.Fail]).
package discordtest
