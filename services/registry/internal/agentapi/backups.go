package agentapi

import (
	"bufio"
	"context"
	"io"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxChunk is the size of a piece of a backup in bytes.
const maxChunk = 1 << 20

// BackupAgents streams a backup; see package backup.
func (s *Service) BackupAgents(req *registryv1.BackupAgentsRequest, out grpc.ServerStreamingServer[registryv1.BackupAgentsResponse]) error {
	if err := s.ofFiles(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(sending(func(b []byte) error {
		return out.Send(&registryv1.BackupAgentsResponse{Chunk: b})
	}), maxChunk)
	err := backup.Write(out.Context(), w, backup.Source{Home: s.Home, Tokens: s.tokens}, backup.Selection{Agents: req.GetAgentIds(), Workdir: req.GetWorkdir()})
	if err == nil {
		err = w.Flush()
	}
	return s.Fault("", thread.Inbox, err)
}

// tokens are the greatest tokens granted.
func (s *Service) tokens(ctx context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	live, err := s.Leases.List(ctx, "", math.MaxInt)
	for _, r := range live {
		out[r.Resource] = r.Token
	}
	return out, err
}

// ofFiles refuses what is done with directories where there are none.
func (s *Service) ofFiles() error {
	if s.Shared == nil {
		return nil
	}
	return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "the agents are in a database, which is backed up and restored whole",
		"use the database's own tools, such as pg_basebackup or pg_dump")
}

// sending makes a writer of a stream; a message may be kept by the transport.
type sending func([]byte) error

func (f sending) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += maxChunk {
		if err := f(append([]byte(nil), p[n:min(n+maxChunk, len(p))]...)); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// RestoreAgents makes the agents of a backup and sets those to work that worked.
func (s *Service) RestoreAgents(in grpc.ClientStreamingServer[registryv1.RestoreAgentsRequest, registryv1.RestoreAgentsResponse]) error {
	if err := s.ofFiles(); err != nil {
		return err
	}
	first, err := in.Recv()
	if err != nil {
		return err
	}
	ctx := in.Context()
	done, err := backup.Restore(ctx, &receiving{in: in, rest: first.GetChunk()}, s.Home,
		backup.Choice{Agents: first.GetAgentIds(), As: first.GetNewAgentId(), Replace: first.GetReplace()})
	if err != nil {
		return s.Fault("", thread.Inbox, err)
	}
	out := &registryv1.RestoreAgentsResponse{}
	for _, r := range done {
		if r.Kept != "" {
			s.Forget(r.Agent)
			s.watch.Drop(s.Home.AgentDir(r.Agent))
		}
		if a, err := s.Dir.Get(r.Agent); err == nil {
			s.watch.Add(a)
			_, _ = s.Agent(ctx, r.Agent) // makes its work due; a problem is in its status
		}
		s.LogAgent(r.Agent, "agent restored from a backup")
		out.Agents = append(out.Agents, &registryv1.RestoredAgent{
			AgentId: r.Agent, Threads: r.Threads, Events: r.Events, LastInboxId: r.LastInboxID, Aborted: r.Aborted, Kept: r.Kept,
		})
	}
	return in.SendAndClose(out)
}

// receiving makes a reader of a stream.
type receiving struct {
	in   grpc.ClientStreamingServer[registryv1.RestoreAgentsRequest, registryv1.RestoreAgentsResponse]
	rest []byte
}

func (r *receiving) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.in.Recv()
		if err != nil {
			return 0, err // io.EOF is the end of the upload
		}
		r.rest = m.GetChunk()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

var _ io.Reader = (*receiving)(nil)
