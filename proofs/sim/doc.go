// Package sim simulates two runners and two deliverers of one agent over
// years of bad luck in a synctest bubble: the real lease table, the real keeper
// and the real engine, with calls that are lost before or after they had their
// effect, word of work that reaches nobody, so that only the sweep finds it,
// holders that stall past their ttl and wake up, that are killed, or drain and
// start again, and a registry that starts again.
//
// The calls are direct, since real sockets would freeze the bubble's clock, so a
// fault is injected where a call would have been. Who is told of work is decided
// here as the registry does it; its own way of doing so is tested with it. A seed
// brings the same faults again; which of two that are ready at one instant goes
// first is the scheduler's, so the figures differ a little.
package sim
