// Package broker serves a socket on which a program in the sandbox can ask for a new agent,
// and for nothing else.
//
//	sandbox                    runner                    registry            owner
//	agent init bob --socket--> Listen --the question---> on disk, shown ---> yes, no,
//	     |                       |  under the lease         |                no answer
//	     |                       |                          | yes: creates bob, once
//	     +<------ bob's directory, or the reason for refusal+
//
// The socket exists while one command of one turn runs, in the command's working
// directory, and only for an agent that may create agents. The runner has no right to
// create one: it only asks, and the registry creates what the owner approved.
//
// It promises one request of at most [maxRequest] bytes per connection, of the only
// method, without unknown fields; at most [maxAsking] requests at a time and
// [maxRequests] while the command runs; and that a request ends when its client hangs up.
// Nothing that the program does to its working directory makes the runner touch a
// file elsewhere. The next command removes what a killed runner left behind.
//
// It decides nothing and knows neither approvals nor the registry. It needs a sandbox in
// which a program may have a socket: level reduced allows none.
package broker
