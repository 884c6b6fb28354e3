package agents

import (
	"bufio"
	"io"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxChunk is the size of a piece of a backup in bytes.
const maxChunk = 1 << 20

// BackupAgents streams a backup; see package backup.
func (s *Service) BackupAgents(req *registryv1.BackupAgentsRequest, out grpc.ServerStreamingServer[registryv1.BackupAgentsResponse]) error {
	w := bufio.NewWriterSize(sending(func(b []byte) error {
		return out.Send(&registryv1.BackupAgentsResponse{Chunk: b})
	}), maxChunk)
	err := s.Backups.Backup(out.Context(), w, backup.Selection{Agents: req.GetAgentIds(), Workdir: req.GetWorkdir()})
	if err == nil {
		err = w.Flush()
	}
	return s.Fault("", thread.Inbox, err)
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
	first, err := in.Recv()
	if err != nil {
		return err
	}
	tar := &receiving{in: in, rest: first.GetChunk()}
	done, err := s.Backups.Restore(in.Context(), tar, backup.Choice{Agents: first.GetAgentIds(), As: first.GetNewAgentId(), Replace: first.GetReplace()})
	if err != nil {
		return s.Fault("", thread.Inbox, err)
	}
	out := &registryv1.RestoreAgentsResponse{}
	for _, r := range done {
		wire.LogAgent(s.Log, r.Agent, "agent restored from a backup")
		out.Agents = append(out.Agents, &registryv1.RestoredAgent{
			AgentId: r.Agent, Threads: r.Threads, Events: r.Events, LastInboxId: r.LastInboxID, Aborted: r.Aborted, Kept: r.Kept, WorkdirLeft: r.Left,
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
