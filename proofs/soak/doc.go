// Package soak lets a home live for a while as it does with its users: the
// services as processes of their own, many agents, steady messages from many
// people, tools, a receiver of webhooks, a provider that fails now and then, and a
// kill -9 of one of the processes every few seconds.
//
// Every invariant is looked at, most of them all the time (look_test.go). Then the
// faults stop: a thousand messages that waited must drain within a minute, and
// under the same load, without kills, what each process holds must stay flat and
// return to its baseline.
package soak
