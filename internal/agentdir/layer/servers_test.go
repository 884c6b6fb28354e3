package layer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/agentdir/config"
)

const serversText = `mcp:
  use: [files]
  servers:
    github:
      command: [github-mcp-server, stdio]
      env: {GITHUB_PERSONAL_ACCESS_TOKEN: 'env:GH_TOKEN', MODE: strict}
      network: [api.github.com]
      cwd: workdir
      paths: [/srv/docs]
      tools: {allow: ['list_*'], deny: [list_secrets]}
      classes: {list_issues: read}
      timeout: 2m
    files: {command: [files], sandbox: off, network: open}
    remote-2: {url: 'https://mcp.example.org/mcp', headers: {Authorization: 'Bearer {{secret:SHOP}}', X-Org: 'env:ORG'}}
    local: {url: 'http://127.0.0.1:3000/'}
`

// S3-59: the servers of a home, in the order of their names, and those that agents use.
func TestServers(t *testing.T) {
	const wait = 30 * time.Second
	want := []Server{
		{Name: "files", Command: []string{"files"}, Unconfined: true, Network: config.Network{Open: true}, Timeout: wait},
		{
			Name: "github", Command: []string{"github-mcp-server", "stdio"}, Env: map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "env:GH_TOKEN", "MODE": "strict"},
			Network: config.Network{Hosts: []string{"api.github.com"}}, InWorkdir: true, Paths: []string{"/srv/docs"},
			Allow: []string{"list_*"}, Deny: []string{"list_secrets"}, Classes: map[string]string{"list_issues": "read"}, Timeout: 2 * time.Minute,
		},
		{Name: "local", URL: "http://127.0.0.1:3000/", Timeout: wait},
		{Name: "remote-2", URL: "https://mcp.example.org/mcp", Headers: map[string]string{"Authorization": "Bearer {{secret:SHOP}}", "X-Org": "env:ORG"}, Timeout: wait},
	}
	l := load(t, Layers{AgentID: "a1", Home: home(serversText), Agent: File{"config.yaml", []byte("agent_id: a1\n")}})
	if d := cmp.Diff(want, l.Servers); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"files"}, l.Config.MCP.Use); d != "" {
		t.Error(d)
	}
	if v, _ := l.Get("mcp.use"); v.Origin != "theclaw.yaml:2" {
		t.Errorf("mcp.use is from %s", v.Origin)
	}
	l = load(t, Layers{AgentID: "a1", Home: home(serversText), Agent: File{"config.yaml", []byte("agent_id: a1\nmcp: {use: [github, later]}\n")}})
	if layers := l.Config.ToolLayers(config.Conversation{}, nil); !cmp.Equal(layers[0].Allow, []string{"exec", "github__*", "later__*"}) {
		t.Errorf("the profile allows %q", layers[0].Allow)
	}
	both := File{"theclaw.json5", []byte(`{mcp: {servers: {files: {command: ['files'], sandbox: 'off', network: 'open'}}, use: ['files']}}`)}
	l = load(t, Layers{AgentID: "a1", Home: both, Agent: File{"config.yaml", []byte("agent_id: a1\n")}})
	if d := cmp.Diff(want[:1], l.Servers); d != "" || len(l.Config.MCP.Use) != 1 {
		t.Error(d, l.Config.MCP.Use)
	}
	for _, text := range []string{"mcp:\n", "mcp: {}\n", "mcp:\n  servers:\n", "mcp: {use: []}\n"} {
		if got, err := ReadHome(home(text)); err != nil || len(got.Servers) != 0 {
			t.Errorf("%q: %v %v", text, got.Servers, err)
		}
	}
}

// Each limit, at its border.
func TestServerLimits(t *testing.T) {
	list := func(n int, form string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(form, i))
		}
		return strings.Join(out, ", ")
	}
	one := func(attributes string) string { return "mcp: {servers: {s: {" + attributes + "}}}\n" }
	command := func(more string) string { return one("command: [x], " + more) }
	many := func(n int) string { return "mcp: {servers: {" + list(n, "s%d: {command: [x]}") + "}}\n" }
	for _, c := range []struct{ good, bad, problem string }{
		{many(32), many(33), "there are 33 servers, and 32 are the most"},
		{"mcp: {servers: {a-b-c234567890123456: {command: [x]}}}\n", "mcp: {servers: {a23456789012345678901: {command: [x]}}}\n", "is not the name of a server"},
		{"", "mcp: {servers: {a--b: {command: [x]}}}\n", "is not the name of a server"},
		{"", "mcp: {servers: {a_b: {command: [x]}}}\n", "is not the name of a server"},
		{"", "mcp: {servers: {-a: {command: [x]}}}\n", "is not the name of a server"},
		{"", "mcp: {servers: {A: {command: [x]}}}\n", "is not the name of a server"},
		{"", "mcp: {servers: [a]}\n", "wants the name of a server"},
		{"", one("timeout: 3s"), "give either command"},
		{"", one("command: [x], url: 'https://a.org'"), "give either command"},
		{one("command: [" + list(64, "w%d") + "]"), one("command: [" + list(65, "w%d") + "]"), "must be a list of 1 to 64 words"},
		{"", one("command: []"), "must be a list of 1 to 64 words"},
		{"", one("command: ['']"), "the first word must be a program"},
		{one("command: [x, '']"), one("command: x"), "must be a list of texts"},
		{one("command: [x, " + strings.Repeat("w", 4096) + "]"), one("command: [x, " + strings.Repeat("w", 4097) + "]"), "4096 are the most"},
		{"", one(`command: [x, "a\nb"]`), "must be one line"},
		{one("url: 'http://localhost/'"), one("url: 'http://example.org/'"), "must begin with https://"},
		{one("url: 'http://[::1]:80/'"), one("url: 'http://10.0.0.1/'"), "must begin with https://"},
		{one("url: 'https://a.org/x?y=1'"), one("url: 'https://u:p@a.org/'"), "without user and password"},
		{"", one("url: 'https://'"), "is not an address"},
		{"", one("url: 'https://a.org', env: {A: b}"), "env is for a server with command"},
		{"", one("url: 'https://a.org', sandbox: on"), "sandbox is for a server with command"},
		{"", one("url: 'https://a.org', paths: [/srv]"), "paths is for a server with command"},
		{"", command("headers: {A: 'env:B'}"), "headers is for a server with url"},
		{command("env: {" + list(50, "V%d: x") + "}"), command("env: {" + list(51, "V%d: x") + "}"), "51 variables, and 50 are the most"},
		{"", command("env: {A-B: x}"), "is not the name of a variable"},
		{command("env: {A: ''}"), command("env: {A: 'env:'}"), "must be a text, env:NAME or file:PATH"},
		{command("env: {A: " + strings.Repeat("v", 4096) + "}"), command("env: {A: " + strings.Repeat("v", 4097) + "}"), "4096 are the most"},
		{"", command("env: {A: 1}"), "put the value in quotes"},
		{"", command("env: [A]"), "must have `name: text` lines"},
		{one("url: 'https://a.org', headers: {" + list(20, "H%d: 'env:X'") + "}"), one("url: 'https://a.org', headers: {" + list(21, "H%d: 'env:X'") + "}"), "21 headers, and 20 are the most"},
		{"", one("url: 'https://a.org', headers: {Authorization: 'Bearer sk-123'}"), "so that it is not in this file"},
		{"", one("url: 'https://a.org', headers: {'A B': 'env:X'}"), "is not the name of a header"},
		{"", one("url: 'https://a.org', headers: {Ab: 'env:X', aB: 'env:X'}"), "is there twice"},
		{command("cwd: scratch"), command("cwd: home"), "is not scratch or workdir"},
		{command("network: off"), command("network: some"), "must be off, open, or a list of hosts"},
		{command("network: [" + list(100, "h%d.org") + "]"), command("network: [" + list(101, "h%d.org") + "]"), "101 hosts, and 100 are the most"},
		{"", command("network: ['https://a.org']"), "is no host"},
		{command("sandbox: false"), command("sandbox: auto"), "must be on or off"},
		{"", command("sandbox: off, network: [a.org]"), "sandbox is off"},
		{"", command("sandbox: off, paths: [/srv]"), "sandbox is off"},
		{command("paths: [" + list(20, "/srv/%d") + "]"), command("paths: [" + list(21, "/srv/%d") + "]"), "21 paths, and 20 are the most"},
		{"", command("paths: [srv]"), "is not an absolute path"},
		{"", command("paths: [/srv/../etc]"), "is not an absolute path"},
		{"", command("paths: [/]"), "is not an absolute path"},
		{command("tools: {allow: [" + list(200, "t%d") + "]}"), command("tools: {deny: [" + list(201, "t%d") + "]}"), "201 names, and 200 are the most"},
		{command("tools: {deny: [" + strings.Repeat("t", 256) + "]}"), command("tools: {deny: [" + strings.Repeat("t", 257) + "]}"), "is not the name of a tool"},
		{"", command("tools: {also: [x]}"), "unknown key \"also\" in mcp.servers.s.tools"},
		{command("classes: {" + list(512, "t%d: read") + "}"), command("classes: {" + list(513, "t%d: read") + "}"), "513 tools, and 512 are the most"},
		{"", command("classes: {t: write}"), "is not read, idempotent or effect"},
		{command("timeout: 1s"), command("timeout: 999ms"), "is not between 1s and 10m"},
		{command("timeout: 10m"), command("timeout: 601s"), "is not between 1s and 10m"},
		{"", command("timeout: -1s"), "is not between 1s and 10m"},
		{"", command("timeout: soon"), "must be a duration"},
		{"", command("comand: [y]"), "did you mean \"command\"?"},
		{"mcp: {use: [" + list(32, "s%d") + "]}\n", "mcp: {use: [" + list(33, "s%d") + "]}\n", "33 servers, and 32 are the most"},
		{"", "mcp: {use: [a_b]}\n", "is not the name of a server"},
		{"", "mcp: {user: [a]}\n", "unknown key \"mcp.user\""},
		{"", "agents: {defaults: {mcp: {servers: {s: {command: [x]}}}}}\n", "belongs at the top of theclaw.yaml"},
		{"", "agents: {list: [{id: a1, mcp: {servers: {s: {command: [x]}}}}]}\n", "belongs at the top of theclaw.yaml"},
	} {
		if err := CheckHome(home(c.good)); c.good != "" && err != nil {
			t.Errorf("%.80q: %v", c.good, err)
		}
		if err := CheckHome(home(c.bad)); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%.80q: %v, want %q", c.bad, err, c.problem)
		}
	}
	_, err := Load(agent("agent_id: a1\nmcp: {servers: {s: {command: [x]}}}\n"))
	if err == nil || !strings.Contains(err.Error(), "config.yaml:2:7: unknown key \"mcp.servers\"; mcp.servers belongs at the top of theclaw.yaml") {
		t.Errorf("in config.yaml: %v", err)
	}
}

// A problem points at the attribute, and shows no value that looks like a secret.
func TestServerProblemsHaveAPlace(t *testing.T) {
	err := CheckHome(home("mcp:\n  servers:\n    s:\n      command: [x]\n      timeout: 1h\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "theclaw.yaml:5:16: mcp.servers.s: timeout: 1h is not between") {
		t.Error(err)
	}
	err = CheckHome(home("mcp:\n  servers:\n    s:\n      url: https://a.org\n      headers:\n        Authorization: Bearer sk-canary\n"))
	if err == nil || strings.Contains(err.Error(), "sk-canary") {
		t.Error(err)
	}
}
