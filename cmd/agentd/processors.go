package main

import "runtime"

// moreProcessors is how many threads of Go may run besides those for which there is a
// processor. A thread that waits for the disk keeps its place among those that may run until
// Go's monitor takes it away, tens of microseconds later: with none to spare a processor is
// idle meanwhile, which was a fifth of the time of a busy home (docs/decisions/028).
const moreProcessors = 4

// processors is what Go found at the start: those of the machine, or of a container's limit.
var processors = runtime.GOMAXPROCS(0)

// useProcessors lets Go run as many threads as suits a home, whose every commit waits for the
// disk. A number in the environment is the operator's choice and stays.
func (e *env) useProcessors() {
	if e.getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors + min(processors, moreProcessors))
	}
}
