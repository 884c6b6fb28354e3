package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// What cannot be read because the database is away can be read later: it is no internal error,
// by which a turn would be dead.
func TestFilesOfADatabaseThatIsAway(t *testing.T) {
	home, err := agentdir.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range []error{store.ErrIO, store.ErrBusy} {
		err := newFiles(nil, home, &central{}, nil).fault("agent-1", configFile, fmt.Errorf("read config.yaml of agent agent-1: %w", cause))
		if f := fault.From(err); f.Code != codes.Unavailable || f.Reason != fault.RegistryUnavailable || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// Files that differ only in the agent's name share one parsed form, and each gives what it
// gives when it is parsed alone; a mistake is reported for each.
func TestSettingsCache(t *testing.T) {
	home, err := agentdir.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := func(id, kind string) string {
		dir, err := home.Agent(id)
		if err != nil {
			t.Fatal(err)
		}
		files, err := agentdir.Spec{Kind: kind, Provider: "offline"}.Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		return string(files["config.yaml"])
	}
	s := newFiles(nil, home, &central{}, nil)
	for _, c := range []struct {
		id, data string
		kept     int
	}{
		{"agent-1", config("agent-1", ""), 1},
		{"agent-2", config("agent-2", ""), 1},
		{"agent-3", config("agent-3", "system"), 2},
		{"agent-4", "\n" + config("agent-4", ""), 2}, // other lines: other origins
		{"agent-5", config("agent-2", ""), 2},
		{"agent-6", "# a\nagent_id: agent-6\nnope: 1\n", 2},
		{"agent-7", "# a\nagent_id: agent-7\nnope: 1\n", 2},
		{"null", "agent_id: null\n", 2},
		{"agent-8", "agent_id: agent-8", 2},
		{"agent-9", "agent_id: agent-9\ninbox:\n  path: inbox\n", 2},
	} {
		want, wantErr := home.Judge(c.id, []byte(c.data))
		got, err := s.judge(c.id, []byte(c.data), "-")
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || wantErr == nil && !(got.ID == c.id && reflect.DeepEqual(got.Config, want.Config) && reflect.DeepEqual(got.Values, want.Values)) {
			t.Errorf("%s: got %+v, %v, want %+v, %v", c.id, got, err, want, wantErr)
		}
		if len(s.parsed) != c.kept {
			t.Errorf("%s: %d are kept, want %d", c.id, len(s.parsed), c.kept)
		}
	}
}
