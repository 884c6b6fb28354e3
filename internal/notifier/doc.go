// Package notifier writes tasks for the external notifier: it knows the notifier's task
// directory, the name of the task that dispatches a thread, and the bytes of a task file.
//
// The notifier runs `thread dispatch` for a thread some time after an event came
// in, one task at a time. Its key is (author, task id): while a task waits, adding
// the same one again is ErrQueued, which means that the dispatch will happen
// and is no failure.
//
// A task file has its complete content before it gets its name, so that a watcher
// never reads half of one. Two inputs that make the external tool lose a task are
// handled here: a `/` in the author (see Author) and a path with blanks in the command
// (see Command).
//
// The package starts no daemon, does not know the content of threads, and promises no
// dispatch: a consumer that must not miss an event polls from time to time.
package notifier
