// Package gateway implements the service through which people reach their agents from chat
// platforms and programs by webhook: it takes in what they write and passes it to the registry.
// Replies leave through the deliverer.
//
// Promises:
//   - A platform or a program gets its acknowledgment after the registry has the message on
//     disk: what was not acknowledged is sent again, and stored once.
//   - A program that follows the run of its message sees the text that is for its peer, and one end, which has
//     the reply of the registry. A program that does not read delays nothing.
//   - It holds no state that must survive it.
//   - Of several gateways of a home one at a time receives for an account that connects to its
//     platform; another one takes over when that one stops, or within the ttl of its lease.
//   - It takes requests of this machine, and with a public address those that its trusted proxies pass on. A port
//     that is in use stops nothing else.
//   - A route without a rule that says who may use it keeps the service from starting.
//
// It does not decide which agent a message is for or who may write (the registry does), runs no
// model, and reads no file or environment variable: what it needs of them is in Config and Deps.
package gateway
