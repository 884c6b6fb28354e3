package agents

import (
	"cmp"
	"context"
	"errors"
	"io/fs"

	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// ReadAgentFile returns a file of the allow-list.
func (s *Service) ReadAgentFile(ctx context.Context, req *registryv1.ReadAgentFileRequest) (*registryv1.ReadAgentFileResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	data, version, err := s.Files.Read(ctx, req.GetAgentId(), req.GetName())
	if errors.Is(err, fs.ErrNotExist) && !s.Agents.Missing(req.GetAgentId()) {
		return &registryv1.ReadAgentFileResponse{}, nil
	}
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	return &registryv1.ReadAgentFileResponse{Content: data, Version: version}, nil
}

// WriteAgentFile replaces such a file.
func (s *Service) WriteAgentFile(ctx context.Context, req *registryv1.WriteAgentFileRequest) (*registryv1.WriteAgentFileResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	version, err := s.Files.Write(ctx, req.GetAgentId(), req.GetName(), req.GetContent(), req.GetIfVersion())
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	return &registryv1.WriteAgentFileResponse{Version: version}, nil
}

// GetAgentConfig returns every setting with its origin.
func (s *Service) GetAgentConfig(ctx context.Context, req *registryv1.GetAgentConfigRequest) (*registryv1.GetAgentConfigResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.Files.Settings(ctx, a)
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	out := &registryv1.GetAgentConfigResponse{}
	for _, v := range set.Values {
		out.Values = append(out.Values, &registryv1.ConfigValue{Key: v.Key, Value: v.Value, Origin: v.Origin})
	}
	return out, nil
}

// SetAgentConfig changes one key.
func (s *Service) SetAgentConfig(ctx context.Context, req *registryv1.SetAgentConfigRequest) (*registryv1.SetAgentConfigResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	version, err := s.Files.Set(ctx, a.ID, req.GetKey(), req.GetValue())
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	s.Agents.MarkDue(a) // what the change allows may have work
	return &registryv1.SetAgentConfigResponse{Version: version}, nil
}

// A log's answer is bounded in lines and, since a line is, far below a message in bytes.
const (
	someLines = 100
	maxAnswer = 3 << 20
)

// ReadAgentLog returns the end of an agent's log.
func (s *Service) ReadAgentLog(ctx context.Context, req *registryv1.ReadAgentLogRequest) (*registryv1.ReadAgentLogResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	lines, err := s.Log.Tail(ctx, a.ID, cmp.Or(int(req.GetLines()), someLines))
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	size, from := 0, len(lines)
	for from > 0 && size+len(lines[from-1]) < maxAnswer {
		from--
		size += len(lines[from])
	}
	return &registryv1.ReadAgentLogResponse{Lines: lines[from:]}, nil
}
