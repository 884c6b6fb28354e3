package runner

import (
	"context"

	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/providerapi"
)

// ListProviders answers the providers of this machine; see providerapi.
func (s *Service) ListProviders(_ context.Context, req *runnerpb.ListProvidersRequest) (*runnerpb.ListProvidersResponse, error) {
	return providerapi.List(s.models.settings, req.GetAll()), nil
}

// TestProvider makes one small call.
func (s *Service) TestProvider(ctx context.Context, req *runnerpb.TestProviderRequest) (*runnerpb.TestProviderResponse, error) {
	return providerapi.Test(ctx, s.models.settings, req.GetName(), req.GetModel())
}
