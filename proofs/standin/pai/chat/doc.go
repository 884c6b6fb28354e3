// Package chat is a stand-in for `pai chat`: what an outside program sees of the
// real one, its faults included.
//
//	pai chat --stream --json --session F --system-file S --provider P --model M --input-file U
//	   |  POST baseUrl/chat/completions, three tries, as the configuration says
//	   |  stdout: the model's text, of all rounds      stderr: events, one JSON a line
//	   |  bash_exec in a session of its own
//	   +- at a good end, and only then: one append to F
//
// It promises the arguments, exit codes, events and session lines that were
// recorded of version 1.0.9 (testdata), and these faults of it:
//   - a stream that breaks off is an answer: exit 0, finishReason stop;
//   - an API error is exit 2 (3 with STANDIN_PAI=head) and its cause is only in
//     the last event;
//   - SIGTERM ends the running tool and then asks the model once more;
//   - after SIGKILL the running bash lives on, and the session is not written.
//
// STANDIN_PAI may hold, separated by commas: head, underscore (the options with a
// file are --session_file, --system_file, --input_file), quick (no waits between
// tries), usage=FILE (a line with the arguments of each start is appended), die=FILE
// (when FILE is there: remove it, and die of SIGKILL after the first piece of text),
// die-help=FILE (the same in the middle of the help text, as a machine without memory does).
//
// It does not redact secrets in events, knows no images, logs, temperature or
// embeddings, and answers of `pai model` only resolve.
package chat
