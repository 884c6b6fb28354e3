// Package plugintest serves ChannelPluginService on a Unix socket, as a program that connects a chat
// platform does, for tests.
//
//	people --> Say --> queue --> Receive --> gateway
//	               <-- confirmed positions <--+
//	people <-- Messages <-- Send, Edit, Delete, React
//
// It promises to refuse what breaks the contract of the service: texts that are too long, sessions and
// messages that it does not know, calls of what it does not declare. Another stream ends the one
// before it. On request it fails ([Fault]). It counts the updates that were confirmed before they were
// sent, and keeps its state in memory when it is stopped and started again.
package plugintest
