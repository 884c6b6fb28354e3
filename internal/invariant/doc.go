// Package invariant checks the promises about messages: what must hold in the databases of
// a home, at the places where its messages went, and in the answers that its clients got,
// whatever has crashed before.
//
// There is one small function for each invariant, I1 to I24, and I40 to I42, named by its number
// in files of the same name. Check runs those that look at a home, at work or
// not; Drain and StopStart are those that need running services; Resources is
// for those about what a process leaves behind. Each answers findings: which
// invariant, where, what was seen, and what to do. No finding means that what
// was looked at is right, and Stats reports how much that was.
//
//	I1  acked means a fate      I8  tools and journal       I15 no secret anywhere
//	I2  one message per event   I9  every delivery arrives  I16 modes
//	I3  one fate, one reply     I10 repeats are flagged     I17 chain and file
//	I4  tokens never fall       I11 order                   I18 the external tool's view
//	I5  fences cover commits    I12 no turn stays claimed   I19 nothing left behind
//	I6  one holder per token    I13 the backlog drains      I20 stop, start, who has work
//	I7  acks never pass, fall   I14 contexts are separate
//	I21 one event per key       I23 key and conversation    I24 epochs and sessions
//	I40 no call without its yes I41 one event per process   I42 one step per answer
//
// What is harmless alone is a warning: a line that a crash left out of
// events.jsonl, a file of an interrupted write. It is looked for where nobody works.
//
// The same holds where several registries keep their agents in PostgreSQL: Options.DSN
// names the database, and the same functions judge what package database reads there. All
// but the file of I17, I18 and what I19 finds in directories is asked of them.
//
// Nothing is ever changed here; package repair does that. A database that cannot
// be read is one finding of I17 or I18, and is left out of the others.
package invariant
