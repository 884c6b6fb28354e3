// Command pai stands in for the pai program of TheClaw 1.0.9 where a test or a
// proof needs one that can be watched and made to fail; package chat is all of it.
package main

import (
	"os"

	"github.com/theclaw/agents/proofs/standin/pai/chat"
)

func main() { os.Exit(chat.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)) }
