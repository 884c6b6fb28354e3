package main

import "github.com/theclaw/agents/internal/sandbox/jail"

func play() { jail.Main() }
