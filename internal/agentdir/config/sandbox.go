package config

import (
	"crypto/sha1" //nolint:gosec // it makes names, as other programs make them
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/theclaw/agents/internal/sessionkey"
)

// The values of sandbox.mode; the older ones are all with a level.
const (
	SandboxOff      = "off"
	SandboxNonMain  = "non-main"
	SandboxAll      = "all"
	olderRequired   = levelRequired
	olderReduced    = levelReduced
	levelRequired   = "required"
	levelReduced    = "reduced"
	ScopeSession    = "session"
	ScopeAgent      = "agent"
	ScopeShared     = "shared"
	AccessNone      = "none"
	AccessReadOnly  = "ro"
	AccessReadWrite = "rw"
)

// Conversation is what the settings of a turn depend on besides the agent. The zero value is a
// conversation without a key.
type Conversation struct {
	// Key is its session key; empty: it has none. Thread is the id of its thread.
	Key, Thread string
	// Account is the account of the home through which it came, and Kind is dm, group or channel;
	// empty: it came through none.
	Account, Kind string
}

// SandboxAt is the sandbox of one conversation.
type SandboxAt struct {
	// Mode is off, non-main or all.
	Mode string
	// Level is required or reduced; off: its programs run on the host.
	Level string
	Scope string
	// Key names what has the scratch directory, and Scratch is the name of that; empty: the tools
	// work in the workspace.
	Key, Scratch string
	Access       string
	// Container is the name of the container in which programs run; empty: they run in the built-in sandbox or on
	// the host. Shared: it is one of all agents.
	Container string
	Shared    bool
}

// SandboxAt returns the sandbox of a conversation. In the mode non-main, one without a key and the
// main one are on the host.
func (c *Config) SandboxAt(at Conversation) SandboxAt {
	out := SandboxAt{Mode: c.Sandbox.Mode, Level: c.Sandbox.Level, Scope: c.Sandbox.Scope, Access: c.Sandbox.WorkspaceAccess}
	if out.Mode == olderRequired || out.Mode == olderReduced {
		out.Mode, out.Level = SandboxAll, out.Mode
	}
	if out.Mode == SandboxOff || out.Mode == SandboxNonMain && c.isMain(at.Key) {
		out.Level, out.Access = SandboxOff, AccessReadWrite
		return out
	}
	if out.Key = ScopeKey(out.Scope, c.AgentID, at); out.Access != AccessReadWrite {
		out.Scratch = Slug(out.Key)
	}
	if c.Sandbox.Driver == driverDocker {
		// A container shows one workspace, so agents share one only where they see none.
		key := out.Key
		if out.Shared = out.Scope == ScopeShared && out.Access == AccessNone; out.Scope == ScopeShared && !out.Shared {
			key += ":" + c.AgentID
		}
		out.Container = c.Sandbox.Docker.ContainerPrefix + Slug(key)
	}
	return out
}

func (c *Config) isMain(key string) bool {
	return key == "" || key == sessionkey.Key{Agent: c.AgentID, Scope: sessionkey.Main, MainKey: c.Session.MainKey}.String()
}

// ScopeKey names what has the scratch directory of a conversation. One without a session key has
// its thread, so that two agents never share it.
func ScopeKey(scope, agent string, at Conversation) string {
	switch scope {
	case ScopeShared:
		return ScopeShared
	case ScopeSession:
		if at.Key == "" {
			return "agent:" + agent + ":" + at.Thread
		}
		return at.Key
	}
	return "agent:" + agent
}

var notOfSlug = regexp.MustCompile(`[^a-z0-9._-]+`)

// Slug is the name of the scratch directory of a scope key.
func Slug(key string) string {
	const most = 32
	key = strings.TrimSpace(key)
	if key == "" {
		key = ScopeSession
	}
	sum := sha1.Sum([]byte(key)) //nolint:gosec // as above
	name := strings.Trim(notOfSlug.ReplaceAllString(strings.ToLower(key), "-"), "-")
	if name = name[:min(len(name), most)]; name == "" {
		name = ScopeSession
	}
	return name + "-" + hex.EncodeToString(sum[:4])
}
