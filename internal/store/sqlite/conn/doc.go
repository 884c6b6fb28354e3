// Package conn opens one connection to a SQLite database, runs its statements, and converts
// their values.
//
// It calls the engine itself. A call through database/sql costs a lock, a
// conversion and several allocations for each value, and the names of all columns
// for each query; a message makes some forty statements, and all of that was
// more than what the engine did for them.
//
// A value comes back as it was given, a null and a number that is
// none are errors where the caller has no place for them, and an error carries
// the engine's extended code. Text is not checked for UTF-8. A connection belongs
// to one goroutine at a time; nothing here locks. Each statement keeps its
// arguments in memory of its own, so that one may run inside the loop over another.
//
// It sets the time to wait for another program's lock, how much memory a connection
// sets aside, and how long the log grows; all other pragmas are its caller's. It keeps
// no statement for its caller, and knows no table.
package conn
