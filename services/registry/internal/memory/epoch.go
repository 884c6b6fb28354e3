package memory

import (
	"context"
	"errors"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// Earlier reports whether the digest of a thread, which reaches up to an event, is of an epoch
// before the one that begins behind another; 0: the epoch is the whole thread.
func Earlier(digested, epochFrom int64) bool { return epochFrom > 0 && digested <= epochFrom }

// InEpoch returns the files of a prompt without the digest of an earlier epoch, which it
// moves out of the thread's file. m is the mark of the thread, as the claim found it.
func (s *Files) InEpoch(ctx context.Context, a *state.Agent, fence store.Fence, r store.Ref, epochFrom int64, m store.MemoryMark, files []*registryv1.ContextFile) ([]*registryv1.ContextFile, error) {
	if !Earlier(m.Digested, epochFrom) {
		return files, nil
	}
	i := slices.IndexFunc(files, func(f *registryv1.ContextFile) bool { return f.GetName() == m.Layer })
	if i < 0 { // it is empty
		return files, nil
	}
	return slices.Delete(files, i, i+1), s.MoveEarlier(ctx, a, fence, r, epochFrom)
}

// MoveEarlier moves the text of a thread's file to memory/past/, when it is of an earlier
// epoch.
func (s *Files) MoveEarlier(ctx context.Context, a *state.Agent, fence store.Fence, r store.Ref, epochFrom int64) error {
	name := ThreadLayer(r.Thread)
	for epochFrom > 0 {
		text, have, err := s.file(ctx, a.ID, name)
		if err != nil || text == "" {
			return err
		}
		marks, err := s.Store.Memory(ctx, r, name) // behind the file: what it says of the file holds
		if err != nil {
			return s.Fault(a.ID, r.Thread, err)
		}
		m := marks[0]
		if !Earlier(m.Digested, epochFrom) {
			return nil
		}
		if m.Text != "" || m.Event != "" {
			if err := s.SettleMark(ctx, a, fence, r, m); err != nil {
				return err
			}
			continue
		}
		if err := s.WritePast(ctx, r, m.Digested, text); err != nil {
			return err
		}
		if _, err = s.Agents.Write(ctx, a.ID, name, []byte{}, have); !errors.Is(err, agentdir.ErrChanged) {
			return s.Fault(a.ID, r.Thread, err)
		}
	}
	return nil
}

// WritePast writes a text of an earlier epoch to memory/past/, under the last event that its
// digest holds. A repeat changes nothing, and another text for the same event, which a
// person wrote, gets a name of its own.
func (s *Files) WritePast(ctx context.Context, r store.Ref, digested int64, text string) error {
	version := agentdir.Version([]byte(text))
	var err error
	for _, mark := range []string{"", version[:route.MemoryPastMark]} {
		name := "memory/past/" + route.MemoryPastFile(r.Thread, digested, mark)
		if _, err = s.Agents.Write(ctx, r.Agent, name, []byte(text), agentdir.NoFile); !errors.Is(err, agentdir.ErrChanged) {
			break
		}
		if _, have, bad := s.file(ctx, r.Agent, name); bad != nil || have == version {
			return bad
		}
	}
	return s.Fault(r.Agent, r.Thread, err)
}
