package channels

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// GetCursor answers where a receiver of an account continues.
func (s *Service) GetCursor(ctx context.Context, req *registryv1.GetCursorRequest) (*registryv1.GetCursorResponse, error) {
	value, err := s.Store.Cursor(ctx, req.GetAccount(), req.GetIdentity(), req.GetName())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	return &registryv1.GetCursorResponse{Value: value}, nil
}

// PutCursor stores where a receiver of an account continues. Errors: CHANNEL_NOT_FOUND, LEASE_LOST.
func (s *Service) PutCursor(ctx context.Context, req *registryv1.PutCursorRequest) (*registryv1.PutCursorResponse, error) {
	account, err := s.Router.Account(ctx, req.GetAccount())
	if err != nil {
		return nil, err
	}
	reader, err := readerOf(ctx, account)
	if err != nil {
		return nil, err
	}
	c := store.Cursor{Account: req.GetAccount(), Identity: req.GetIdentity(), Name: req.GetName(), Value: req.GetValue(), At: time.Now()}
	if err := s.Store.PutCursor(ctx, c, reader); err != nil {
		return nil, s.Fault("", "", err)
	}
	return &registryv1.PutCursorResponse{}, nil
}
