package registry_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// mediaOf describes data.
func mediaOf(data string) *registryv1.Media {
	sum := sha256.Sum256([]byte(data))
	return &registryv1.Media{Sha256: hex.EncodeToString(sum[:]), Mime: "image/png", Name: "x.png", Size: int64(len(data))}
}

// writeMedia sends data in pieces.
func writeMedia(ctx context.Context, w *backendtest.World, agent string, m *registryv1.Media, data string) error {
	out, err := w.Media.WriteMedia(ctx)
	if err != nil {
		return err
	}
	req := &registryv1.WriteMediaRequest{AgentId: agent, Media: m}
	for err == nil {
		n := min(len(data), 256<<10)
		req.Data, data = []byte(data[:n]), data[n:]
		if err = out.Send(req); data == "" {
			break
		}
		req = &registryv1.WriteMediaRequest{}
	}
	_, err = out.CloseAndRecv() // of a stream that was refused, why
	return err
}

func readMedia(ctx context.Context, w *backendtest.World, agent, sum string) (data string, name string, err error) {
	in, err := w.Media.ReadMedia(ctx, &registryv1.ReadMediaRequest{AgentId: agent, Sha256: sum})
	for err == nil {
		var r *registryv1.ReadMediaResponse
		if r, err = in.Recv(); err == nil {
			data += string(r.GetData())
			name += r.GetMedia().GetName()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data, name, err
}

// Media are what was written, for the agent that they were written for; a write under a lease is for the agent of the
// lease, and data that are not what the description says are refused.
func TestMedia(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, o backendtest.Options) {
		w := o.Start(t, registry.Config{})
		w.Create("a1")
		w.Create("a2")
		w.Push("a1", "bob", "look", "")
		leased := w.Leased("a1", "runner")
		data := strings.Repeat("0123456789", 70_000)
		m := mediaOf(data)
		for range 2 { // a repeat is no error
			if err := writeMedia(leased, w, "a1", m, data); err != nil {
				t.Fatal(err)
			}
		}
		got, name, err := readMedia(t.Context(), w, "a1", m.GetSha256())
		if err != nil || got != data || name != "x.png" {
			t.Errorf("read %d bytes of %q, %v", len(got), name, err)
		}
		if _, _, err := readMedia(t.Context(), w, "a2", m.GetSha256()); !fault.Is(err, fault.MediaNotFound) {
			t.Errorf("of another agent: %v", err)
		}
		if err := writeMedia(t.Context(), w, "a2", mediaOf("the owner's"), "the owner's"); err != nil {
			t.Errorf("the owner: %v", err)
		}
		large, short, named := mediaOf("x"), mediaOf("x"), mediaOf("x")
		large.Size, short.Size, named.Name = 50<<20+1, 2, "../x.png"
		for what, c := range map[string]struct {
			agent  string
			m      *registryv1.Media
			reason string
		}{
			"of another agent":   {"a2", mediaOf("x"), fault.LeaseLost},
			"no such agent":      {"a3", mediaOf("x"), fault.AgentNotFound},
			"another hash":       {"a1", mediaOf("y"), fault.InvalidArgument},
			"another size":       {"a1", short, fault.InvalidArgument},
			"too large":          {"a1", large, fault.MediaTooLarge},
			"a name with a path": {"a1", named, fault.InvalidArgument},
			"no description":     {"a1", nil, fault.InvalidArgument},
		} {
			if err := writeMedia(leased, w, c.agent, c.m, "x"); !fault.Is(err, c.reason) {
				t.Errorf("%s: %v, want %s", what, err, c.reason)
			}
		}
		if _, _, err := readMedia(t.Context(), w, "a1", mediaOf("x").GetSha256()); !fault.Is(err, fault.MediaNotFound) {
			t.Errorf("what was refused: %v", err)
		}
	})
}

// The media of a peer go with its messages and those of others stay; a backup has them, and the checks find nothing.
func TestMediaOfAPeer(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, o backendtest.Options) {
		w := o.Start(t, registry.Config{})
		w.Create("a1")
		for _, peer := range []string{"bob", "carol"} {
			if err := writeMedia(t.Context(), w, "a1", mediaOf("picture of "+peer), "picture of "+peer); err != nil {
				t.Fatal(err)
			}
			w.Push("a1", peer, "look", "")
			w.Reply("a1", "sha256:"+mediaOf("picture of "+peer).GetSha256())
			w.Deliver("a1", "threads/peers/main-"+peer)
		}
		there := func(agent, peer string) bool {
			t.Helper()
			got, _, err := readMedia(t.Context(), w, agent, mediaOf("picture of "+peer).GetSha256())
			if err != nil && !fault.Is(err, fault.MediaNotFound) {
				t.Error(err)
			}
			return got == "picture of "+peer
		}
		if all := string(w.Export("a1", "bob")); !strings.Contains(all, "picture of bob") || strings.Contains(all, "picture of carol") {
			t.Error("the export has not the media of the peer alone")
		}
		restoreAs(t, w, "a1", "a2")
		w.StopAgent("a1")
		if err := writeMedia(t.Context(), w, "a1", mediaOf("picture of dave"), "picture of dave"); err != nil { // whose message comes next
			t.Fatal(err)
		}
		for range 2 {
			if _, err := w.Erase("a1", "bob", true); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			agent, peer string
			want        bool
		}{{"a1", "bob", false}, {"a1", "carol", true}, {"a1", "dave", true}, {"a2", "bob", true}, {"a2", "carol", true}} {
			if there(c.agent, c.peer) != c.want {
				t.Errorf("media of %s at %s: %v", c.peer, c.agent, !c.want)
			}
		}
		found, _, err := invariant.Check(t.Context(), layout.At(w.Home), invariant.Options{DSN: o.DSN, Live: true})
		if err != nil || len(found) > 0 {
			t.Errorf("found %v, %v", found, err)
		}
	})
}

// restoreAs backs an agent up and restores it under another name.
func restoreAs(t *testing.T, w *backendtest.World, agent, as string) {
	t.Helper()
	in, err := w.Agents.BackupAgents(t.Context(), &registryv1.BackupAgentsRequest{AgentIds: []string{agent}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.Agents.RestoreAgents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := &registryv1.RestoreAgentsRequest{NewAgentId: as}
	for {
		r, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		req.Chunk = r.GetChunk()
		if err := out.Send(req); err != nil {
			t.Fatal(err)
		}
		req = &registryv1.RestoreAgentsRequest{}
	}
	if r, err := out.CloseAndRecv(); err != nil || len(r.GetAgents()) != 1 {
		t.Fatal(fmt.Sprint(r), err)
	}
}
