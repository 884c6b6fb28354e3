package openai_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is an HTTP client whose idle connections end with the test.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func newDriver(t *testing.T, cfg openai.Config) *openai.Driver {
	t.Helper()
	if cfg.Client == nil {
		cfg.Client = client(t)
	}
	cfg.Name = "test"
	d, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S0-86, S0-87: every failure of a provider has its class; broken streams are
// never answers.
func TestConformance(t *testing.T) {
	// Nothing of the environment reaches the driver.
	t.Setenv("OPENAI_API_KEY", "sk-from-the-environment")
	t.Setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
	c := client(t)
	modeltest.Run(t, func(baseURL string) model.Driver {
		return newDriver(t, openai.Config{BaseURL: baseURL, APIKey: modeltest.Key, Client: c})
	})
}
