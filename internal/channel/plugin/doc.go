// Package plugin connects an account to a program that serves ChannelPluginService (theclaw/channel/v1)
// on a Unix socket, so that a channel can be written in any language.
//
//	plugin --> Receive: update, position --> intake --> registry: on disk
//	       <-- position up to which all are stored <--------------+
//	plugin <-- Send, Edit, Delete, SetTyping, React, Find <-- deliverer, gateway
//
// Promises:
//   - An update is confirmed only after it and all before it are stored or refused. What was not
//     confirmed comes again in the next stream, and is known by its conversation and message id.
//   - Each call has a deadline, each message a largest size, and the texts that are sent are valid
//     UTF-8. What a plugin says about itself is used only when it is within its limits.
//   - A send makes a connection of its own: nothing was sent when the plugin cannot be reached, and
//     gRPC repeats nothing.
//   - The socket must be served by our own user.
//
// What an error of a plugin means is the table in [account.down]. The package does not start
// programs, keeps nothing on disk, and does not retry.
package plugin
