// Package provider implements the command `agentctl providers`: which model providers
// there are and whether one works.
//
// It promises to show no key, only where each is read from and whether that worked. The
// runner has the keys and makes the call of a test.
package provider

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// entry is a provider for programs.
type entry struct {
	Name       string   `json:"name"`
	Aliases    []string `json:"aliases"`
	Driver     string   `json:"driver"`
	BaseURL    string   `json:"base_url"`
	Key        string   `json:"key"`
	KeyFrom    string   `json:"key_from"`
	KeyProblem string   `json:"key_problem"`
	Origin     string   `json:"origin"`
	Default    bool     `json:"default"`
	Models     []model  `json:"models"`
}

type model struct {
	Name          string `json:"name"`
	ContextWindow int64  `json:"context_window"`
	Price         *price `json:"price"`
}

type price struct {
	Input      float64  `json:"input"`
	Output     float64  `json:"output"`
	CacheRead  *float64 `json:"cache_read"`
	CacheWrite *float64 `json:"cache_write"`
}

// Command answers the command providers.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "providers",
		Short: "List model providers, and test one",
		Example: `  agentctl providers list
  agentctl providers test openai`,
	}, listCommand(e), testCommand(e))
}

func listCommand(e *command.Env) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the model providers",
		Long: `List the model providers of the runner's machine: from providers.yaml in the home,
from the environment of the runner and from a configuration of pai. The default, which
is used for agents that name none, is marked with a star. Keys are never shown.`,
		Example: `  agentctl providers list
  agentctl providers list --all --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := e.RunnerService().ListProviders(c.Context(), &runner.ListProvidersRequest{All: all})
			if err != nil {
				return err
			}
			entries := []entry{}
			for _, p := range r.GetProviders() {
				entries = append(entries, entryOf(p))
			}
			t := screen.NewTable(e, "name", "aliases", "driver", "base url", "key", "from", "origin", "models").Wide("aliases", "origin").Drop("base url", "from", "driver")
			t.Then(func() {
				for _, p := range entries {
					if p.Origin != "" && p.KeyProblem != "" {
						e.Note("%s: %s", screen.Line(p.Name), screen.Line(p.KeyProblem))
					}
				}
				for _, n := range r.GetNotes() {
					e.Note("note: %s", screen.Line(n))
				}
			})
			return screen.List(t, entries, func(p entry) []any {
				return []any{p.title(e), cmp.Or(strings.Join(p.Aliases, ", "), "-"), p.Driver, cmp.Or(p.BaseURL, "-"), p.Key, cmp.Or(p.KeyFrom, "-"), cmp.Or(p.Origin, "-"), cmp.Or(p.names(), "-")}
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also known providers that are not configured")
	return c
}

func entryOf(p *runner.Provider) entry {
	out := entry{
		Name: p.GetName(), Aliases: append([]string{}, p.GetAliases()...), Driver: p.GetDriver(), BaseURL: p.GetBaseUrl(), Key: command.Word(p.GetKey(), "KEY_STATE_", "none"), KeyFrom: p.GetKeyFrom(),
		KeyProblem: p.GetKeyProblem(), Origin: p.GetOrigin(), Default: p.GetIsDefault(), Models: []model{},
	}
	for _, m := range p.GetModels() {
		one := model{Name: m.GetName(), ContextWindow: m.GetContextWindow()}
		if q := m.GetPrice(); q != nil {
			one.Price = &price{Input: q.GetInput(), Output: q.GetOutput(), CacheRead: q.CacheRead, CacheWrite: q.CacheWrite}
		}
		out.Models = append(out.Models, one)
	}
	return out
}

func (p entry) title(e *command.Env) string {
	if p.Default && !e.Data() {
		return p.Name + " *"
	}
	return p.Name
}

// names are the models with their windows in thousands of tokens.
func (p entry) names() string {
	var out []string
	for _, m := range p.Models {
		out = append(out, fmt.Sprintf("%s (%dk)", m.Name, m.ContextWindow/1000))
	}
	return strings.Join(out, ", ")
}

// result is a test for programs.
type result struct {
	Provider      string  `json:"provider"`
	Model         string  `json:"model"`
	LatencyMS     float64 `json:"latency_ms"`
	FirstTokenMS  float64 `json:"first_token_ms"`
	InputTokens   int64   `json:"input_tokens"`
	OutputTokens  int64   `json:"output_tokens"`
	ContextWindow int64   `json:"context_window"`
	Text          string  `json:"text"`
}

func testCommand(e *command.Env) *cobra.Command {
	var modelName string
	c := &cobra.Command{
		Use:   "test PROVIDER",
		Short: "Test a provider with one small call",
		Long: `Test a provider with one small call, as a turn would make it but without tools and
retries, and show how long it took and how many tokens it used. A failure is shown with
the fix. Use --timeout for providers that take longer than 10 s.`,
		Example: `  agentctl providers test openai
  agentctl providers test work --model small --timeout 1m`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.RunnerService().TestProvider(c.Context(), &runner.TestProviderRequest{Name: args[0], Model: modelName})
			if err != nil {
				return err
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			out := result{
				Provider: r.GetProvider(), Model: r.GetModel(), LatencyMS: ms(r.GetLatency().AsDuration()), FirstTokenMS: ms(r.GetFirstToken().AsDuration()),
				InputTokens: r.GetInputTokens(), OutputTokens: r.GetOutputTokens(), ContextWindow: r.GetContextWindow(), Text: r.GetText(),
			}
			return e.Show(out, out.Provider, "provider  %s\nmodel     %s (context window %d tokens)\nlatency   %.0f ms, first token after %.0f ms\nusage     %d tokens in, %d out\nanswer    %s",
				screen.Line(out.Provider), screen.Line(out.Model), out.ContextWindow, out.LatencyMS, out.FirstTokenMS,
				out.InputTokens, out.OutputTokens, cmp.Or(screen.Line(out.Text), "-"))
		},
	}
	command.TextFlag(c.Flags(), &modelName, "model", command.Model, "model to call (default: the provider's first)")
	return c
}
