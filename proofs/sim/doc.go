// Package sim simulates two runners and two deliverers of one agent over
// years of faults in a synctest bubble: the real lease table, the real keeper
// and the real engine, with calls that are lost before or after they had their
// effect, notifications of work that reach nobody, so that only the scan finds it,
// holders that stall past their ttl and wake up, that are killed, or drain and
// start again, and a registry that restarts.
//
// The calls are direct, since real sockets would freeze the bubble's clock, so a
// fault is injected where a call would have been. Which holder is notified of work is
// decided here as the registry does it; the registry's own code is tested with it. A seed
// repeats the same faults; which of two goroutines that are ready at one instant runs
// first is the scheduler's decision, so the figures differ a little.
package sim
