// Package providerapi answers which model providers there are and whether one
// works, for a person who sets them up.
//
// It promises that no key is in an answer or an error, only where it is read
// from and whether that worked; that a test is one small call, never repeated;
// and that what failed has the reason and the fix a turn would have.
//
// It changes no settings: those are files and the environment.
package providerapi

import (
	"cmp"
	"context"
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
	"github.com/theclaw/agents/services/runner/internal/model/provider/known"
)

// List answers the providers of the settings by name; with all, also those that
// are known and not set up.
func List(s *provider.Settings, all bool) *runnerpb.ListProvidersResponse {
	out := &runnerpb.ListProvidersResponse{Notes: s.Notes}
	there := map[string]bool{}
	for _, p := range s.Providers() {
		there[p.Name] = true
		out.Providers = append(out.Providers, describe(p, p.Name == s.Default))
	}
	for _, k := range known.All {
		if !all || there[k.Name] {
			continue
		}
		p := &runnerpb.Provider{
			Name: k.Name, Driver: k.API, BaseUrl: k.BaseURL, Key: runnerpb.KeyState_KEY_STATE_MISSING, KeyFrom: "env:" + k.KeyVar,
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
	return out
}

func describe(p provider.Provider, isDefault bool) *runnerpb.Provider {
	out := &runnerpb.Provider{
		Name: p.Name, Driver: p.API, BaseUrl: p.BaseURL, KeyFrom: p.KeyFrom, Key: runnerpb.KeyState_KEY_STATE_NONE,
		Origin: string(p.Source), IsDefault: isDefault,
	}
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
	// question is short, and so is its answer; models that think first need room.
	question  = "Answer with the one word: ready"
	maxOutput = 512
	// patience bounds a test; a person waits for it.
	patience = time.Minute
	maxShown = 200
)

// Test makes one call to a provider; empty names are the defaults.
func Test(ctx context.Context, s *provider.Settings, name, modelName string) (*runnerpb.TestProviderResponse, error) {
	driver, modelName, window, err := s.Resolve(name, modelName)
	if err != nil {
		return nil, failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := driver.Generate(ctx, model.Request{
		Model: modelName, MaxOutputTokens: maxOutput, Messages: []model.Message{{Role: model.RoleUser, Text: question}},
	}, nil)
	if err != nil {
		return nil, failed(err)
	}
	text := []rune(strings.Join(strings.Fields(r.Text), " "))
	return &runnerpb.TestProviderResponse{
		Provider: driver.Name(), Model: cmp.Or(r.Model, modelName), Latency: durationpb.New(r.Duration), FirstToken: durationpb.New(r.FirstToken),
		InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output, Text: string(text[:min(len(text), maxShown)]), ContextWindow: int64(window),
	}, nil
}

// failed words a classed failure as a turn's error has it.
func failed(err error) error {
	e := model.AsError(err)
	code := codes.FailedPrecondition
	switch e.Class {
	case model.RateLimited:
		code = codes.ResourceExhausted
	case model.Unavailable, model.Unreachable, model.CutStream, model.BadResponse:
		code = codes.Unavailable
	case model.Canceled:
		code = codes.Canceled
	case model.Timeout:
		return fault.Wrap(fault.New(codes.Unavailable, fault.ModelUnavailable, "the provider did not answer within "+patience.String(), e.Fix()), err)
	default:
	}
	return fault.Wrap(fault.New(code, e.Reason(), e.Error(), e.Fix()), err)
}
