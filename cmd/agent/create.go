package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
)

// create asks for an agent on the socket of the sandbox, in the words of agentctl,
// and waits until the owner has answered.
func create(ctx context.Context, args []string, socket string, out io.Writer) error {
	const fix = "use 'agent init ID [--kind user|system] [--provider NAME] [--model NAME]'"
	var kind string
	var r broker.Request
	f := flag.NewFlagSet("init", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&kind, "kind", "user", "")
	f.StringVar(&r.Provider, "provider", "", "")
	f.StringVar(&r.Model, "model", "", "")
	for len(args) > 0 { // flags may stand on both sides of the id
		if err := f.Parse(args); err != nil {
			return fault.Usage(err.Error(), fix)
		}
		switch args = f.Args(); {
		case len(args) > 0 && r.AgentID != "":
			return fault.Usage(fmt.Sprintf("%.80q is too many", args[0]), fix)
		case len(args) > 0:
			r.AgentID, args = args[0], args[1:]
		}
	}
	switch {
	case r.AgentID == "":
		return fault.Usage("the argument ID is missing", fix)
	case kind != "user" && kind != "system":
		return fault.Usage(fmt.Sprintf("--kind %.64q is not known", kind), fix)
	}
	r.System = kind == "system"
	err := layout.ValidID(r.AgentID)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		e := fault.From(err)
		return fault.Usage(e.What, e.Fix)
	}
	dir, err := broker.Ask(ctx, socket, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Agent '%s' initialized at %s\n", r.AgentID, dir)
	return nil
}
