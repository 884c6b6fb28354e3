package toolpolicy

import (
	"maps"
	"slices"
	"strings"
)

// aliases are further names of tools, as flavors and older settings have them.
var aliases = map[string]string{
	"bash": "exec", "bash_exec": "exec", "shell": "exec",
	"file_read": "read", "file_write": "write",
	"message_send": "message", "remember": "memory_save",
}

// Canonical is the name by which policies know a tool: lower case, _ for -, without spaces
// around it, and one name for all aliases.
func Canonical(name string) string {
	name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_")
	if n, ok := aliases[name]; ok {
		return n
	}
	return name
}

// presented are the names under which a presentation offers tools, where they are not the
// tools' own.
var presented = map[string]map[string]string{
	Openclaw:  {"exec": "exec", "message": "message"},
	Agentclaw: {"exec": "shell", "read": "file_read", "write": "file_write"},
}

// Presentations returns the names of all presentations; the first one has the names of the tools
// themselves.
func Presentations() []string { return []string{Theclaw, Openclaw, Agentclaw} }

// Presented is the name under which a presentation offers a tool. A presentation that is not
// known, as an older registry sends none, keeps the tool's own name.
func Presented(presentation, name string) string {
	if n, ok := presented[presentation][Canonical(name)]; ok {
		return n
	}
	return name
}

// The groups of tools by what they are, besides those of a list of names.
const (
	GroupMCP      = "group:mcp"      // tools of MCP servers
	GroupPlugins  = "group:plugins"  // tools of plugins
	GroupPrograms = "group:programs" // programs of the home that are tools; they are in groupRuntime as well
)

// groupRuntime are the tools that run programs.
const groupRuntime = "group:runtime"

// groups are the tools of each group, by the names of package toolset and of those to come.
var groups = map[string][]string{
	"group:memory":     {"memory_search", "memory_get", "memory_save"},
	"group:web":        {"web_search", "web_fetch"},
	"group:fs":         {"read", "write", "edit", "apply_patch"},
	"group:search":     {"grep", "find", "ls"},
	groupRuntime:       {"exec", "process"},
	"group:sessions":   {"sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "session_status"},
	"group:ui":         {"browser", "canvas"},
	"group:automation": {"cron", "gateway"},
	"group:messaging":  {"message"},
	"group:nodes":      {"nodes"},
	"group:openclaw": {
		"browser", "canvas", "nodes", "cron", "message", "gateway", "agents_list", "sessions_list", "sessions_history", "sessions_send",
		"sessions_spawn", "session_status", "memory_search", "memory_get", "web_search", "web_fetch", "image",
	},
	GroupMCP:      nil,
	GroupPlugins:  nil,
	GroupPrograms: nil,
}

// members are the groups as sets.
var members = func() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for g, names := range groups {
		out[g] = map[string]bool{}
		for _, n := range names {
			out[g][n] = true
		}
	}
	return out
}()

// Groups returns the names of all groups, sorted.
func Groups() []string { return slices.Sorted(maps.Keys(groups)) }

// The profiles, which are the first layer.
const (
	Theclaw   = "theclaw"
	Minimal   = "minimal"
	Coding    = "coding"
	Messaging = "messaging"
	Full      = "full"
	Agentclaw = "agentclaw"
)

// Openclaw is a presentation and no profile: its profile is full.
const Openclaw = "openclaw"

// Profiles returns the names of all profiles.
func Profiles() []string { return []string{Theclaw, Minimal, Coding, Messaging, Full, Agentclaw} }

// profiles are the layers of the profiles; that of full denies nothing. exec allows apply_patch, which the
// profile theclaw does not have: it offers one tool.
var profiles = map[string]Layer{
	Theclaw:   {Allow: []string{"exec"}, Deny: []string{"apply_patch"}},
	Full:      {},
	Minimal:   {Allow: []string{"session_status"}},
	Coding:    {Allow: []string{"group:fs", "group:runtime", "group:sessions", "group:memory", "image"}},
	Messaging: {Allow: []string{"group:messaging", "sessions_list", "sessions_history", "sessions_send", "session_status"}},
	Agentclaw: {Allow: []string{
		"exec", "read", "write", "web_search", "web_fetch", "ask_user", "memory_save", "set_reminder", "schedule", "send_file",
		"python", "http_request", "browser__*", "comfyui__*", "plan_task",
	}},
}

// MaxOffered is the most tools that a model gets. Beyond it those of MCP servers are left out, from the end.
const MaxOffered = 128

// Builtin reports whether a name is, or will be, that of a tool of the runner itself, by any of its names.
func Builtin(name string) bool {
	name = Canonical(name)
	for _, names := range members {
		if names[name] {
			return true
		}
	}
	for _, l := range profiles {
		if slices.Contains(l.Allow, name) {
			return true
		}
	}
	return false
}

// BrowserServer is the name of the MCP server with a browser that settings and profiles expect.
const BrowserServer = "browser"

// ServerCommand is the command that adds the MCP server with a tool that the runner does not have itself, by the name of
// the tool; empty: none is known.
func ServerCommand(name string) string {
	if name = Canonical(name); name == BrowserServer || strings.HasPrefix(name, BrowserServer+"__") {
		return "agentctl mcp add " + BrowserServer + " --preset playwright"
	}
	return ""
}
