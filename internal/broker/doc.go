// Package broker owns the one way out that a program in the sandbox may have: a
// socket of its own on which it can ask for a new agent, and for nothing else.
//
//	sandbox                    runner                    registry            owner
//	agent init bob --socket--> Listen --the question---> on disk, shown ---> yes, no,
//	     |                       |  under the lease         |                silence
//	     |                       |                          | yes: makes bob, once
//	     +<------ bob's directory, or why not <-------------+
//
// The socket is there while one command of one turn runs, in the command's working
// directory, and only for an agent that may make agents. The runner has no right to
// make one: what it can do is to ask, and the registry does what the owner approved.
//
// It promises: one request of at most [maxRequest] bytes on a connection, of the one
// method that there is, with no field that is not known; at most [maxAsking] at a
// time and [maxRequests] while the command runs; whoever hangs up asks no longer.
// Nothing that the program does to its working directory makes the runner touch a
// file elsewhere. What a runner that was killed has left behind goes with the next
// command.
//
// It does not decide anything, and knows neither approvals nor the registry. It needs
// a sandbox in which a program may have a socket: level reduced lets it have none.
package broker
