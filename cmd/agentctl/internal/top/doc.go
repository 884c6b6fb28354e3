// Package top implements the command `agentctl top`: which agents have work, how much of
// it waits, and how fast it is done, once or repeatedly.
//
//	every --every: ListAgents --> GetAgentStatus of each (8 at a time)
//	                                   |
//	               active in the last minute --> ListTurns, the newest 200
//
// It promises that a refresh is bounded: it queries at most [MaxAgents] agents, starts
// only after the previous one ended, and shows an agent that cannot be used without
// waiting for it. It changes nothing.
package top
