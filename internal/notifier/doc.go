// Package notifier owns what the external notifier understands: where it keeps
// its tasks, what the task that dispatches a thread is called, and the bytes and
// the making of a task file.
//
// The notifier runs `thread dispatch` for a thread some time after an event came
// in, one task at a time. Its key is (author, task id): while a task waits, the
// same one added again is ErrQueued, which means that the dispatch will happen
// and is no failure.
//
// A task file has its whole content before it has its name, so that a watcher
// never reads half of one. What would lose the task in the tool itself does not
// here: a `/` in the author (see Author) and a path with blanks in the command
// (see Command).
//
// The package starts no daemon, knows no thread's content, and promises no
// dispatch: whoever must not miss an event looks for himself from time to time.
package notifier
