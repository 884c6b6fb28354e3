// Command theclaw-sandbox starts sandboxed programs for agentd: it is the launcher, the
// trampoline and the sandbox's init (package internal/sandbox/jail) and nothing else. agentd
// can play these roles itself, but it is 20 times as large, and each call of a tool starts
// such a process.
//
// agentd uses the file theclaw-sandbox in its own directory if the file has the hash that
// was compiled into agentd, so both must be of one build. People never call it. There is a
// sandbox on Linux only; elsewhere the program just says so.
package main

import "os"

func main() {
	play() // does not return when agentd started it
	_, _ = os.Stderr.WriteString("theclaw-sandbox is started by agentd, for the tools of agents on Linux; see agentd --help\n")
	os.Exit(2)
}
