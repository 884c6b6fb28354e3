package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
)

// ListProviders returns the providers of this machine by name; with all, also the
// well-known ones that are not set up. No key is in the answer, only where it is
// read from and whether that worked.
func (s *Service) ListProviders(_ context.Context, req *runnerpb.ListProvidersRequest) (*runnerpb.ListProvidersResponse, error) {
	settings := s.models.settings
	out := &runnerpb.ListProvidersResponse{Notes: settings.Notes}
	switch c := req.GetCheck(); {
	case c.GetTranscribe():
		out.Problem, out.ProblemReason, out.ProblemFix = s.models.transcriberProblem(c.GetProvider())
	case c != nil:
		out.Problem, out.ProblemReason, out.ProblemFix = s.models.problem(c.GetProvider(), c.GetModel())
	}
	there := map[string]bool{} // by all names
	for _, p := range settings.Providers() {
		there[p.Name] = true
		for _, name := range provider.Names(p.Name) {
			there[name] = true
		}
		out.Providers = append(out.Providers, describeProvider(p, p.Name == settings.Default))
	}
	for _, k := range provider.Presets {
		if !req.GetAll() || there[k.Name] {
			continue
		}
		p := &runnerpb.Provider{
			Name: k.Name, Aliases: k.Aliases, Driver: k.API, BaseUrl: k.BaseURL, Key: runnerpb.KeyState_KEY_STATE_MISSING, KeyFrom: "env:" + k.KeyVar,
			KeyProblem: "set " + strings.Join(k.Needs(), " and "),
		}
		if k.KeyVar == "" {
			p.Key, p.KeyFrom = runnerpb.KeyState_KEY_STATE_NONE, ""
		}
		if k.Model != "" {
			window := k.Window
			if w := k.Windows[k.Model]; w > 0 {
				window = w
			}
			p.Models = []*runnerpb.ProviderModel{{Name: k.Model, ContextWindow: int64(window)}}
		}
		out.Providers = append(out.Providers, p)
	}
	slices.SortStableFunc(out.GetProviders(), func(a, b *runnerpb.Provider) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

func describeProvider(p provider.Provider, isDefault bool) *runnerpb.Provider {
	out := &runnerpb.Provider{
		Name: p.Name, Driver: p.API, BaseUrl: p.BaseURL, KeyFrom: p.KeyFrom, Key: runnerpb.KeyState_KEY_STATE_NONE,
		Origin: string(p.Source), IsDefault: isDefault,
	}
	out.Aliases = slices.DeleteFunc(provider.Names(p.Name), func(name string) bool { return name == p.Name })
	if p.KeyFrom != "" {
		out.Key = runnerpb.KeyState_KEY_STATE_SET
		if err := p.CheckKey(); err != nil {
			out.Key, out.KeyProblem = runnerpb.KeyState_KEY_STATE_MISSING, err.Error()
		}
	}
	names := slices.Clone(p.Models)
	prices := p.Prices()
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		m := &runnerpb.ProviderModel{Name: name, ContextWindow: int64(p.Window(name))}
		if price, ok := prices[name]; ok {
			m.Price = &runnerpb.Price{Input: price.Input, Output: price.Output, CacheRead: price.CacheRead, CacheWrite: price.CacheWrite}
		}
		out.Models = append(out.Models, m)
	}
	return out
}

const (
	// testPrompt is short, and so is its answer; models that think first need the tokens.
	testPrompt    = "Answer with the one word: ready"
	testMaxOutput = 512
	// testTimeout bounds a test; a person waits for it.
	testTimeout = time.Minute
	testMaxText = 200
)

// TestProvider makes one small call to a provider, never repeated; empty names are
// the defaults. A failure has the reason and the fix that a turn would have.
func (s *Service) TestProvider(ctx context.Context, req *runnerpb.TestProviderRequest) (*runnerpb.TestProviderResponse, error) {
	driver, modelName, window, err := s.models.settings.Resolve(req.GetName(), req.GetModel())
	if err != nil {
		return nil, providerError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	begun := time.Now()
	r, err := driver.Generate(ctx, model.Request{
		Model: modelName, MaxOutputTokens: testMaxOutput, Messages: []model.Message{{Role: model.RoleUser, Text: testPrompt}},
	}, nil)
	if model.AsError(err) != nil && model.AsError(err).Class == model.Timeout { // of the caller, or ours
		return nil, fault.Wrap(fault.New(codes.Unavailable, fault.ModelUnavailable,
			fmt.Sprintf("%s: no answer within %s", driver.Name(), time.Since(begun).Round(100*time.Millisecond)),
			"check the network and the provider's base_url, or allow more time with --timeout"), err)
	}
	if err != nil {
		return nil, providerError(err)
	}
	text := []rune(strings.Join(strings.Fields(r.Text), " "))
	return &runnerpb.TestProviderResponse{
		Provider: driver.Name(), Model: cmp.Or(r.Model, modelName), Latency: durationpb.New(r.Duration), FirstToken: durationpb.New(r.FirstToken),
		InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output, Text: string(text[:min(len(text), testMaxText)]), ContextWindow: int64(window),
	}, nil
}

// providerError is a classified failure as the error of a turn reports it.
func providerError(err error) error {
	e := model.AsError(err)
	code := codes.FailedPrecondition
	switch e.Class {
	case model.RateLimited:
		code = codes.ResourceExhausted
	case model.Unavailable, model.Unreachable, model.CutStream, model.BadResponse:
		code = codes.Unavailable
	case model.Canceled:
		code = codes.Canceled
	default:
	}
	return fault.Wrap(fault.New(code, e.Reason(), e.Error(), e.Fix()), err)
}
