package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// completionTime is how long a person who pressed tab waits for a service.
	completionTime = time.Second
	// completionMost is how many messages or runs are offered, the newest.
	completionMost = 50
)

// Offer answers what may stand at a place of the command line after args; each may have a
// description behind a tab.
type Offer func(ctx context.Context, e *Env, args []string) ([]string, error)

// Complete makes the completion of an argument out of what is offered for it. It does not
// wait long for a service, and silently offers nothing when none answers.
func (e *Env) Complete(offer Offer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		e.Impatient, e.Err = true, io.Discard
		all, err := offer(ctx, e, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArgs is the completion of arguments with these names.
func (e *Env) completeArgs(names []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(names) == 0 || len(args) >= len(names) && !strings.Contains(names[len(names)-1], "...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name := plainName(names[min(len(args), len(names)-1)])
		k, known := operands[cmp.Or(c.Annotations[name], name)]
		switch {
		case known && (k.Noun == Path.Noun || k.Noun == File.Noun): // which the shell knows
			return nil, cobra.ShellCompDirectiveDefault
		case k.offer == nil:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.Complete(k.offer)(c, args, typed)
	}
}

// completeFlag gives a flag its completion.
func (e *Env) completeFlag(c *cobra.Command, f *pflag.Flag) {
	k, _ := KindOf(f)
	offer := k.offer
	if of, ok := f.Value.(*Choice); ok {
		offer = func(context.Context, *Env, []string) ([]string, error) { return of.Values, nil }
	}
	if _, has := c.GetFlagCompletionFunc(f.Name); !has && offer != nil {
		_ = c.RegisterFlagCompletionFunc(f.Name, e.Complete(offer))
	}
}

func offerAgents(ctx context.Context, e *Env, args []string) (ids []string, err error) {
	agents, err := e.AllAgents(ctx)
	for _, a := range agents {
		if id := a.GetAgentId(); !slices.Contains(args, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func offerThreads(ctx context.Context, e *Env, args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	ids, err := e.AllThreads(ctx, args[0])
	return append([]string{thread.Inbox}, ids...), err
}

func offerRuns(ctx context.Context, e *Env, args []string) ([]string, error) {
	return offerTurns(ctx, e, args, func(t *registry.Turn) string {
		return fmt.Sprintf("%s\tmessage %d", t.GetKey(), t.GetInboxId())
	})
}

func offerMessages(ctx context.Context, e *Env, args []string) ([]string, error) {
	return offerTurns(ctx, e, args, func(t *registry.Turn) string {
		return fmt.Sprintf("%d\tfrom %s", t.GetInboxId(), t.GetSource())
	})
}

func offerTurns(ctx context.Context, e *Env, args []string, show func(*registry.Turn) string) (out []string, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	r, err := e.Turns().ListTurns(ctx, &registry.ListTurnsRequest{AgentId: args[0], PageSize: completionMost})
	for _, t := range r.GetTurns() {
		out = append(out, show(t))
	}
	return out, err
}

// offerSessions offers the sessions that were last active, of all agents.
func offerSessions(ctx context.Context, e *Env, _ []string) (out []string, err error) {
	agents, err := e.AllAgents(ctx)
	for _, a := range agents {
		r, err := e.Sessions().ListSessions(ctx, &registry.ListSessionsRequest{AgentId: a.GetAgentId(), PageSize: completionMost})
		if err != nil {
			continue // an agent that cannot be read does not hide the others
		}
		for _, s := range r.GetSessions() {
			out = append(out, strings.TrimSuffix(s.GetKey()+"\t"+s.GetTitle(), "\t"))
		}
	}
	return out, err
}

func offerProviders(ctx context.Context, e *Env, _ []string) (out []string, err error) {
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{})
	for _, p := range r.GetProviders() {
		out = append(out, p.GetName()+"\t"+p.GetBaseUrl())
	}
	return out, err
}

func offerModels(ctx context.Context, e *Env, _ []string) (out []string, err error) {
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{})
	for _, p := range r.GetProviders() {
		for _, m := range p.GetModels() {
			out = append(out, m.GetName()+"\tof "+p.GetName())
		}
	}
	return out, err
}

// CompleteID completes a first argument with the agents there are.
func (e *Env) CompleteID(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return e.completeArgs([]string{"ID"})(c, args, typed)
}

func offerChannels(ctx context.Context, e *Env, _ []string) (names []string, err error) {
	s, err := e.HomeSettings(ctx)
	for _, a := range s.Accounts {
		names = append(names, a.Name)
	}
	return names, err
}

func offerPersons(ctx context.Context, e *Env, _ []string) (names []string, err error) {
	r, err := e.Channels().ListPairings(ctx, &registry.ListPairingsRequest{})
	for _, p := range r.GetPairings() {
		names = append(names, p.GetAccount()+":"+p.GetPeerId())
	}
	return names, err
}

// OfferServers offers the MCP servers of the home that have tools.
func OfferServers(ctx context.Context, e *Env, _ []string) (names []string, err error) {
	r, err := e.Pins().ListPins(ctx, &registry.ListPinsRequest{})
	for _, p := range r.GetPins() {
		if !slices.Contains(names, p.GetServer()) {
			names = append(names, p.GetServer())
		}
	}
	return names, err
}
