package layout

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// maxSocketPath is the longest path a Unix socket can have on Linux, in bytes
// (sun_path is 108 with its end mark).
const maxSocketPath = 107

// Home is a home directory by its path alone.
type Home struct{ path, agents, defaults, json5 string }

// At returns the Home at a path.
func At(path string) Home {
	path = filepath.Clean(path)
	return Home{path, filepath.Join(path, "agents"), filepath.Join(path, DefaultsName), filepath.Join(path, JSON5Name)}
}

// CheckProfile returns what is wrong with the name of a profile; nil: nothing.
func CheckProfile(profile string) error {
	if name(profile, 32, "-") && profile[0] != '-' {
		return nil
	}
	return fault.Usage(fmt.Sprintf("%.80q is not the name of a profile", profile), "use lower-case letters, digits and '-', at most 32, for example dev")
}

// ChosenHome is [DefaultHome] with a home and a profile of the command line, which win over the
// environment; empty ones are not chosen.
func ChosenHome(home, profile string, getenv func(string) string) (string, error) {
	return DefaultHome(func(name string) string {
		switch {
		case name == "THECLAW_HOME" && home != "":
			return home
		case name == "THECLAW_PROFILE" && profile != "":
			return profile
		}
		return getenv(name)
	})
}

// DefaultHome returns the home directory that the environment asks for: THECLAW_HOME,
// else .theclaw in HOME, with -NAME added for the profile NAME of THECLAW_PROFILE. The result
// is absolute.
func DefaultHome(getenv func(string) string) (string, error) {
	path, user := getenv("THECLAW_HOME"), getenv("HOME")
	switch rest, tilde := strings.CutPrefix(path, "~/"); {
	case path == "" && user != "":
		path = filepath.Join(user, ".theclaw")
	case tilde && user != "":
		path = filepath.Join(user, rest)
	case path == "" || tilde:
		return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, "there is no home directory",
			"set THECLAW_HOME to a directory, or set HOME")
	}
	if strings.ContainsAny(path, "\x00\n\r") {
		return "", fault.New(codes.InvalidArgument, fault.InvalidArgument, "the home directory's path holds a line break or NUL", "set THECLAW_HOME to another directory")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve home: %w", err)
	}
	if profile := getenv("THECLAW_PROFILE"); profile != "" {
		if err := CheckProfile(profile); err != nil {
			return "", err
		}
		abs += "-" + profile
	}
	return abs, nil
}

// Path returns the home directory.
func (h Home) Path() string { return h.path }

// RunDir holds what lives as long as a process: sockets, token, locks.
func (h Home) RunDir() string { return filepath.Join(h.path, "run") }

// TokenFile holds the capability token of the local services.
func (h Home) TokenFile() string { return filepath.Join(h.path, "run", "token") }

// TLSDir holds certificates, for services on TCP.
func (h Home) TLSDir() string { return filepath.Join(h.path, "tls") }

// AuditDir holds the audit log. It is not in run/: it outlives everything.
func (h Home) AuditDir() string { return filepath.Join(h.path, "audit") }

// LockFile is held by the one registry of this home.
func (h Home) LockFile() string { return filepath.Join(h.path, "run", "registry.lock") }

// SandboxesDir holds the scratch directories of conversations in a sandbox.
func (h Home) SandboxesDir() string { return filepath.Join(h.path, "sandboxes") }

// ServersDir holds the directories of MCP servers, by agent and server.
func (h Home) ServersDir() string { return filepath.Join(h.path, "mcp") }

// HoldersDir holds one locked file for each living holder of leases.
func (h Home) HoldersDir() string { return filepath.Join(h.path, "run", "holders") }

// AgentsDir holds one directory for each agent.
func (h Home) AgentsDir() string { return h.agents }

// RegistryDB is the registry's own database. It is not in run/: what is in there may
// be lost at a reboot, leases and desired states may not.
func (h Home) RegistryDB() string { return filepath.Join(h.path, "registry.db") }

// DefaultsFile is the optional file of home-wide settings.
func (h Home) DefaultsFile() string { return h.defaults }

// JSON5File is the file of home-wide settings when it is written as JSON5. A home has one of
// the two.
func (h Home) JSON5File() string { return h.json5 }

// EnvFile is the optional file of variables for references to secrets.
func (h Home) EnvFile() string { return filepath.Join(h.path, EnvName) }

// EnvName is the name of that file.
const EnvName = ".env"

// EdgeName is the file in a home with what people decided for it, as a restore leaves it: the
// registry adds its rows when it starts, and removes it.
const EdgeName = "edge.jsonl"

// DefaultsName is the name of the file of home-wide settings.
const DefaultsName = "theclaw.yaml"

// JSON5Name is its name when it is written as JSON5.
const JSON5Name = "theclaw.json5"

// Socket returns the path of a service's Unix socket. A path that is longer than the
// system allows is an error that says what to do.
func (h Home) Socket(service string) (string, error) {
	if !name(service, 32, "-") || service[0] < 'a' {
		return "", fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.80q is not a service name", service), "use registry, runner, deliverer or gateway")
	}
	path := filepath.Join(h.path, "run", service+".sock")
	if len(path) > maxSocketPath {
		return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument,
			fmt.Sprintf("the socket path %s has %d bytes, %d is the limit", path, len(path), maxSocketPath),
			"set THECLAW_HOME to a shorter path, such as a symbolic link to it")
	}
	return path, nil
}

// AgentDir returns the directory of an agent whose id is valid. It is asked for some
// twenty times for a message, so it is only put together.
func (h Home) AgentDir(id string) string { return h.agents + string(filepath.Separator) + id }

// ResolveThread turns the path of a thread that a dispatcher passed to a shim into the
// agent and the thread it means. A path that is not below the home's agents/ is
// refused. A home reached over a symbolic link is recognized.
func ResolveThread(homePath, dir string) (agentID, threadID string, err error) {
	agents := filepath.Join(homePath, "agents")
	refuse := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.200q is not a thread of an agent of this home", dir),
		"give the path of a thread below "+agents+", or set THECLAW_HOME")
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return "", "", refuse
	}
	rel, err := filepath.Rel(agents, filepath.Clean(dir))
	if err != nil || !filepath.IsLocal(rel) {
		realAgents, err1 := filepath.EvalSymlinks(agents)
		realDir, err2 := filepath.EvalSymlinks(dir)
		if err := errors.Join(err1, err2); err != nil {
			return "", "", fault.Wrap(refuse, err)
		}
		if rel, err = filepath.Rel(realAgents, realDir); err != nil || !filepath.IsLocal(rel) {
			return "", "", refuse
		}
	}
	agentID, threadID, _ = strings.Cut(filepath.ToSlash(rel), "/")
	if ValidID(agentID) != nil || ValidThread(threadID) != nil {
		return "", "", refuse
	}
	return agentID, threadID, nil
}
