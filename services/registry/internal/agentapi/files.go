package agentapi

import (
	"context"
	"errors"
	"io/fs"

	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// ReadAgentFile answers a file of the allow-list.
func (s *Service) ReadAgentFile(_ context.Context, req *registryv1.ReadAgentFileRequest) (*registryv1.ReadAgentFileResponse, error) {
	dir, err := s.DirOf(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	data, version, err := dir.ReadFile(req.GetName())
	if errors.Is(err, fs.ErrNotExist) && dir.Check() == nil {
		return &registryv1.ReadAgentFileResponse{}, nil
	}
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	return &registryv1.ReadAgentFileResponse{Content: data, Version: version}, nil
}

// WriteAgentFile replaces such a file.
func (s *Service) WriteAgentFile(_ context.Context, req *registryv1.WriteAgentFileRequest) (*registryv1.WriteAgentFileResponse, error) {
	dir, err := s.DirOf(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	version, err := dir.WriteFile(req.GetName(), req.GetContent(), req.GetIfVersion())
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	return &registryv1.WriteAgentFileResponse{Version: version}, nil
}

// GetAgentConfig answers every setting with its origin.
func (s *Service) GetAgentConfig(_ context.Context, req *registryv1.GetAgentConfigRequest) (*registryv1.GetAgentConfigResponse, error) {
	a, err := s.Dir.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := a.Settings(s.Home)
	if err != nil {
		return nil, err
	}
	out := &registryv1.GetAgentConfigResponse{}
	for _, v := range set.Values {
		out.Values = append(out.Values, &registryv1.ConfigValue{Key: v.Key, Value: v.Value, Origin: v.Origin})
	}
	return out, nil
}

// SetAgentConfig changes one key.
func (s *Service) SetAgentConfig(_ context.Context, req *registryv1.SetAgentConfigRequest) (*registryv1.SetAgentConfigResponse, error) {
	dir, err := s.DirOf(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	version, err := dir.SetConfig(req.GetKey(), req.GetValue())
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	if a, err := s.Dir.Get(req.GetAgentId()); err == nil {
		s.MarkDue(a) // what the change allows may have work
	}
	return &registryv1.SetAgentConfigResponse{Version: version}, nil
}
