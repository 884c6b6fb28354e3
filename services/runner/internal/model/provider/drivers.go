package provider

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

// makeDriver makes the driver of a provider. key is empty where the provider has none; client is shared by all drivers.
type makeDriver func(p Provider, key string, client *http.Client) (model.Driver, error)

// drivers makes the driver of a provider by the API that it speaks over the network. It is
// the one list of them: what it does not have is refused in providers.yaml and is never a
// default.
var drivers = map[string]makeDriver{
	apiAnthropic: func(p Provider, key string, client *http.Client) (model.Driver, error) {
		return anthropic.New(anthropic.Config{Name: p.Name, BaseURL: p.BaseURL, APIKey: key, Client: client, Thinking: p.thinking})
	},
	apiOpenAI: func(p Provider, key string, client *http.Client) (model.Driver, error) {
		return openai.New(openai.Config{Name: p.Name, BaseURL: p.BaseURL, APIKey: key, Client: client, ReplayReasoning: p.replayReasoning})
	},
}

// apis are the words that api may be in providers.yaml.
func apis() string {
	return strings.Join(slices.Sorted(maps.Keys(drivers)), ", ") + " or " + apiOffline
}
