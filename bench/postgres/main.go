// Command postgres measures several registries over one PostgreSQL against the bare
// transactions of the same database, in one run on one machine.
//
//	postgres -agentd PATH [-quick] [-dsn URL] [-out DIR] [-doc FILE]
//
// It prints one table: goal, measured, ratio to the limit next to it, met or not. The
// database is a cluster of its own, durable, unless a URL names one. Model time is
// none: the offline driver answers.
//
// A message is four transactions of the runtime when nothing sends its reply on:
//
//	push    T0      event, key, head, agent due
//	open            what has no fate is read under the lease (writes nothing)
//	claim   T1, T2  event in the conversation, key, turn, head (waits for no disk)
//	end     T7, T8  answer's step, reply, key, delivery, turn, head; fate, ack, agent not due
//
// Each makes the rows that stand here. A bare message is the same four, with the same
// rows and locks and waiting for the disk where the runtime waits, each sent as one
// batch by a writer that knows everything beforehand; every writer has an agent of its
// own, so that none waits for another. It decides nothing, looks for nothing, hashes
// nothing and calls nobody. A message of the engine is the runtime's own transactions, with
// all that they look for, by the storage engine in this process, for as many conversations
// and agents as the services have: no call between processes, no routing, no prompt. The goal
// is half of each.
//
// Each process of the services has its share of the processors (GOMAXPROCS), one at least. All,
// the engine and bare messages too, have this one's GODEBUG, by make that of deploy/ (decision 016).
//
// A unit is one such transaction: fence, event, key, head and ack.
//
// On one machine the runtime's other classes take processors from the database, which the
// bare messages have for themselves. Where the system lets it (cpulimit.go), both are
// measured once more with a PostgreSQL that has a small share of a processor, while the
// rest has what is left: then it is PostgreSQL that limits, as with machines for each
// class, when what it uses of its share says so.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("postgres", flag.ContinueOnError)
	f.SetOutput(stderr)
	b := bench{say: func(format string, a ...any) { fmt.Fprintf(stderr, format+"\n", a...) }}
	f.StringVar(&b.agentd, "agentd", ".bin/agentd", "the program to measure")
	f.BoolVar(&b.quick, "quick", false, "a small run, about a minute")
	f.StringVar(&b.dsn, "dsn", "", "URL of an empty database; default: a cluster of its own")
	f.StringVar(&b.only, "only", "", "a comma list of what to measure: limits, throughput, standby, quota, dispatch, many; default all")
	f.IntVar(&b.many, "agents", 0, "how many agents are many; default 100,000, and 10,000 in a small run")
	f.IntVar(&b.messages, "messages", 0, "messages of each conversation in a turn; default 25, and 15 in a small run")
	out := f.String("out", "", "folder to write the table to; default: only print it")
	doc := f.String("doc", "", "page whose table of figures is replaced")
	if err := f.Parse(args); err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // what was started is ended
	defer stop()
	err := perform(ctx, b.measure)
	fmt.Fprint(stdout, &b.table)
	if err == nil && *out != "" {
		err = b.table.Write(*out, "-postgres")
	}
	if err == nil && *doc != "" {
		err = b.table.Show(*doc, "bench-postgres")
	}
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	return 0
}
