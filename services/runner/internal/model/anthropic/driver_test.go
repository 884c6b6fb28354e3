package anthropic_test

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/drivertest"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDriver(t *testing.T, cfg anthropic.Config) *anthropic.Driver {
	t.Helper()
	if cfg.Client == nil {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		cfg.Client = &http.Client{Transport: transport}
	}
	cfg.Name = "test"
	d, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S0-86, S0-87: every failure of a provider has its class; broken streams are
// never answers.
func TestConformance(t *testing.T) {
	// Nothing of the environment reaches the driver.
	t.Setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
	t.Setenv("ANTHROPIC_BASE_URL", "http://192.0.2.1/v1")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	drivertest.Run(t, func(baseURL string, silence time.Duration) model.Driver {
		return newDriver(t, anthropic.Config{BaseURL: baseURL, APIKey: modeltest.Key, Client: &http.Client{Transport: transport}, IdleTimeout: silence})
	})
}
