// Package top owns the command top: which agents have work, how much of it waits,
// and how fast it is done, once or again and again.
//
//	every --every: ListAgents --> GetAgentStatus of each (8 at a time)
//	                                   |
//	               active in the last minute --> ListTurns, the newest 200
//
// It promises that a look is bounded: at most [MaxAgents] agents are asked, one
// look begins only after the one before it ended, and an agent that cannot be
// used is shown and holds up nobody. It changes nothing.
package top
