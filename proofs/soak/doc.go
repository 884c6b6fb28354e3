// Package soak runs a home for a while as its users do: the services as separate
// processes, many agents, steady messages from many people, tools, a receiver of
// webhooks, a provider that fails now and then, and a kill -9 of one of the processes
// every few seconds.
//
// Every invariant is checked, most of them continuously (look_test.go). Then the faults
// stop: a thousand waiting messages must drain within a minute, and under the same load,
// without kills, the memory and descriptors of each process must stay flat and return to
// their baseline.
package soak
