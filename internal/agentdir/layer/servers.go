package layer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/reference"
)

// Server is an MCP server: a program that the runner starts, or one that is reached by HTTP.
type Server struct {
	Name       string
	Command    []string          // the program and its arguments; empty: it is at URL
	URL        string            // https, or http to a loopback address
	Env        map[string]string // of the program: a text, env:NAME or file:PATH
	Headers    map[string]string // of requests: env:NAME, file:PATH, or a text with {{secret:NAME}}
	InWorkdir  bool              // the program works in the working directory of the agent
	Network    config.Network    // what the program reaches
	Unconfined bool              // the program is started without a sandbox
	Paths      []string          // absolute; the program may read them
	// Allow and Deny are patterns of tools by their names at the server.
	Allow, Deny []string
	Classes     map[string]string // read, idempotent or effect, by tools
	Timeout     time.Duration     // of a call without progress; 30 s by default
}

const (
	maxWords     = 64
	maxWord      = 4096 // bytes of a word of a command, and of a value
	maxEnv       = 50
	maxHeaders   = 20
	maxPaths     = 20
	maxToolNames = 200
	maxClasses   = 512
	maxToolName  = 256 // bytes

	serverTimeout  = 30 * time.Second
	leastTimeout   = time.Second
	longestTimeout = 10 * time.Minute
)

// The words of cwd and sandbox.
const (
	cwdScratch = "scratch"
	cwdWorkdir = "workdir"
	sandboxOn  = "on"
	sandboxOff = "off"
)

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`) })
	secretMark = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\{\{\s*secret:\s*[A-Za-z_][A-Za-z0-9_]{0,63}\s*\}\}`)
	})
)

// without reads what of a section at the top are not settings of agents, the entries below name, and returns the rest;
// nil: there is none.
func without(kv *ast.MappingValueNode, name string, read func(*ast.MappingValueNode)) *ast.MappingValueNode {
	pairs, ok := yamldoc.Pairs(kv.Value)
	if !ok {
		return kv
	}
	var rest []*ast.MappingValueNode
	for _, p := range pairs {
		if key(p) == name {
			read(p)
			continue
		}
		rest = append(rest, p)
	}
	if len(rest) == 0 {
		return nil
	}
	out := *kv
	out.Value = &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: kv.GetToken(), Values: rest}
	return &out
}

// servers reads mcp.servers.
func (h *Home) servers(l *layer, kv *ast.MappingValueNode) {
	s := &h.Settings
	const section = "mcp.servers"
	entries, ok := yamldoc.Pairs(kv.Value)
	switch {
	case !ok && kv.Value.Type() != ast.NullType:
		l.fail(kv.Value, section, section+" wants the name of a server with command or url below it")
	case len(entries) > config.MaxServers:
		l.fail(kv, section, fmt.Sprintf("there are %d servers, and %d are the most", len(entries), config.MaxServers))
		return
	}
	for _, entry := range entries {
		h.mark(section+"."+written(entry), entry)
		s.Servers = append(s.Servers, l.server(entry, section+"."+config.Clip(written(entry))))
	}
	slices.SortFunc(s.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
}

// server reads an entry of mcp.servers.
func (l *layer) server(entry *ast.MappingValueNode, full string) Server {
	one := Server{Name: written(entry), Timeout: serverTimeout}
	cwd, sandbox, timeout := cwdScratch, sandboxOn, ""
	at := map[string]ast.Node{}
	before := len(*l.problems)
	read := func(to any, set func(ast.Node) string) func(*ast.MappingValueNode) {
		return func(kv *ast.MappingValueNode) {
			problem := ""
			if to, ok := to.(*map[string]string); ok {
				problem = textMap(kv.Value, to)
			} else {
				problem = set(kv.Value)
			}
			if problem != "" {
				l.fail(orKey(kv), full, full+": "+key(kv)+": "+problem)
			}
		}
	}
	l.object(entry.Value, full, map[string]any{
		"command": &one.Command, "url": &one.URL, "cwd": &cwd, "paths": &one.Paths, "timeout": &timeout,
		"env": read(&one.Env, nil), "headers": read(&one.Headers, nil), "classes": read(&one.Classes, nil),
		"network": read(nil, func(n ast.Node) string { return network(n, &one.Network) }),
		"sandbox": read(nil, func(n ast.Node) string { return onOff(n, &sandbox) }),
		"tools": func(kv *ast.MappingValueNode) {
			l.object(kv.Value, full+".tools", map[string]any{"allow": &one.Allow, "deny": &one.Deny}, map[string]ast.Node{})
		},
	}, at)
	one.InWorkdir, one.Unconfined = cwd == cwdWorkdir, sandbox == sandboxOff
	if len(*l.problems) > before {
		return one
	}
	attribute, problem := one.problem(at)
	switch {
	case problem != "":
	case cwd != cwdScratch && cwd != cwdWorkdir:
		attribute, problem = "cwd", fmt.Sprintf("cwd: %q is not %s or %s", config.Clip(cwd), cwdScratch, cwdWorkdir)
	case at["timeout"] != nil:
		if text := config.ParseDuration(timeout, &one.Timeout); text != "" {
			attribute, problem = "timeout", "timeout: "+text
		} else if one.Timeout < leastTimeout || one.Timeout > longestTimeout {
			attribute, problem = "timeout", fmt.Sprintf("timeout: %s is not between %s and %s", config.Duration(one.Timeout), config.Duration(leastTimeout), config.Duration(longestTimeout))
		}
	}
	if problem != "" {
		l.fail(orElse(at[attribute], entry), full, full+": "+problem)
	}
	return one
}

// problem is what is wrong with a server, and with which attribute; empty: nothing. given are the attributes that
// are there.
func (s Server) problem(given map[string]ast.Node) (attribute, problem string) {
	if !config.IsServer(s.Name) {
		return "", fmt.Sprintf("%q is not the name of a server (%s)", config.Clip(s.Name), config.ServerForm)
	}
	_, command := given["command"]
	_, url := given["url"]
	only, of := []string{"headers"}, "url"
	switch {
	case command == url:
		return "", "give either command, the program that is the server, or url, its address"
	case url:
		only, of = []string{"env", "cwd", "network", "sandbox", "paths"}, "command"
	}
	for _, a := range only {
		if given[a] != nil {
			return a, a + " is for a server with " + of
		}
	}
	for _, c := range []struct {
		attribute string
		check     func() string
	}{
		{"command", s.commandProblem},
		{"url", s.urlProblem},
		{"env", s.envProblem},
		{"headers", s.headersProblem},
		{"network", s.networkProblem},
		{"paths", s.pathsProblem},
		{"tools", s.toolsProblem},
		{"classes", s.classesProblem},
	} {
		if given[c.attribute] == nil {
			continue
		}
		if problem := c.check(); problem != "" {
			return c.attribute, c.attribute + ": " + problem
		}
	}
	return "", ""
}

func (s Server) commandProblem() string { return commandProblem(s.Command) }

// commandProblem is what is wrong with the words of a command; empty: nothing.
func commandProblem(words []string) string {
	switch {
	case len(words) == 0 || len(words) > maxWords:
		return fmt.Sprintf("must be a list of 1 to %d words", maxWords)
	case words[0] == "":
		return "the first word must be a program"
	}
	for _, w := range words {
		if problem := valueProblem(w); problem != "" {
			return fmt.Sprintf("%q %s", config.Clip(w), problem)
		}
	}
	return ""
}

// valueProblem is what is wrong with a word of a command, or with a value.
func valueProblem(s string) string {
	switch {
	case len(s) > maxWord:
		return fmt.Sprintf("has %d bytes, and %d are the most", len(s), maxWord)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "must be one line"
	}
	return ""
}

func (s Server) urlProblem() string {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || config.IsLine(s.URL) != "" || u.Fragment != "":
		return fmt.Sprintf("%q is not an address such as https://mcp.example.org/mcp, without user and password", config.Clip(s.URL))
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return ""
	}
	return "must begin with https://, or http:// and a loopback address"
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (s Server) envProblem() string {
	if len(s.Env) > maxEnv {
		return fmt.Sprintf("%d variables, and %d are the most", len(s.Env), maxEnv)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name]
		switch {
		case !secretName().MatchString(name):
			return fmt.Sprintf("%q is not the name of a variable", config.Clip(name))
		case valueProblem(value) != "":
			return "the value of " + name + " " + valueProblem(value)
		case (strings.HasPrefix(value, "env:") || strings.HasPrefix(value, "file:")) && !reference.Is(value):
			return "the value of " + name + " must be a text, env:NAME or file:PATH"
		}
	}
	return ""
}

func (s Server) headersProblem() string {
	if len(s.Headers) > maxHeaders {
		return fmt.Sprintf("%d headers, and %d are the most", len(s.Headers), maxHeaders)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value, low := s.Headers[name], strings.ToLower(name)
		switch {
		case !headerName().MatchString(name):
			return fmt.Sprintf("%q is not the name of a header", config.Clip(name))
		case seen[low]:
			return name + " is there twice"
		case valueProblem(value) != "":
			return "the value of " + name + " " + valueProblem(value)
		case !reference.Is(value) && !secretMark().MatchString(value):
			return "the value of " + name + " must be env:NAME, file:PATH, or a text with {{secret:NAME}}, so that it is not in this file"
		}
		seen[low] = true
	}
	return ""
}

func (s Server) networkProblem() string {
	if _, err := egress.Parse(s.Network.Hosts); err != nil {
		return err.Error()
	}
	if s.Unconfined && len(s.Network.Hosts) > 0 {
		return "hosts are listed for the sandbox, and sandbox is off"
	}
	return ""
}

func (s Server) pathsProblem() string {
	switch {
	case len(s.Paths) > maxPaths:
		return fmt.Sprintf("%d paths, and %d are the most", len(s.Paths), maxPaths)
	case s.Unconfined:
		return "paths are listed for the sandbox, and sandbox is off"
	}
	for _, p := range s.Paths {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || config.IsLine(p) != "" {
			return fmt.Sprintf("%q is not an absolute path such as /srv/docs", config.Clip(p))
		}
	}
	return ""
}

func (s Server) toolsProblem() string {
	for _, list := range [][]string{s.Allow, s.Deny} {
		if len(list) > maxToolNames {
			return fmt.Sprintf("%d names, and %d are the most", len(list), maxToolNames)
		}
		for _, name := range list {
			if !isToolName(name) {
				return fmt.Sprintf("%q is not the name of a tool, or a pattern with *", config.Clip(name))
			}
		}
	}
	return ""
}

func isToolName(s string) bool {
	return s != "" && len(s) <= maxToolName && !strings.ContainsFunc(s, unicode.IsControl)
}

func (s Server) classesProblem() string {
	if len(s.Classes) > maxClasses {
		return fmt.Sprintf("%d tools, and %d are the most", len(s.Classes), maxClasses)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Classes)) {
		switch {
		case !isToolName(name):
			return fmt.Sprintf("%q is not the name of a tool", config.Clip(name))
		case !slices.Contains([]string{"read", "idempotent", "effect"}, s.Classes[name]):
			return fmt.Sprintf("%q of %s is not read, idempotent or effect", config.Clip(s.Classes[name]), config.Clip(name))
		}
	}
	return ""
}

// textMap reads a mapping of free names to texts.
func textMap(n ast.Node, to *map[string]string) string {
	pairs, ok := yamldoc.Pairs(n)
	if !ok {
		return "must have `name: text` lines below it"
	}
	out := map[string]string{}
	for _, kv := range pairs {
		var value string
		if problem := text(kv.Value, &value); problem != "" {
			return config.Clip(written(kv)) + " " + problem
		}
		out[written(kv)] = value
	}
	*to = out
	return ""
}

// onOff reads on or off, which a parser may take for true and false.
func onOff(n ast.Node, to *string) string {
	switch v := n.(type) {
	case *ast.BoolNode:
		if *to = sandboxOff; v.Value {
			*to = sandboxOn
		}
		return ""
	case *ast.StringNode:
		if v.Value == sandboxOn || v.Value == sandboxOff {
			*to = v.Value
			return ""
		}
	}
	return "must be on or off"
}
