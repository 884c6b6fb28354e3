//go:build proof

package canary_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// Places of secrets.
const (
	serverEnv    = "environment of an MCP server"
	serverHeader = "header of an MCP server"
	webSecret    = "secret of the web tools"
)

// serverVariable has the secret of the MCP server that this program is, if it is set.
const serverVariable = "CANARY_SERVER"

// mcpMain is an MCP server over stdin and stdout, to its end, if the environment has its secret; else it returns.
func mcpMain() {
	secret := os.Getenv(serverVariable)
	if secret == "" {
		return
	}
	fmt.Fprintf(os.Stderr, "starting with the key %s\n", secret) // as careless servers do
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		if doc := respond(line, secret); doc != nil {
			fmt.Printf("%s\n", doc)
		}
	}
}

// respond is what an MCP server with one tool answers; nil: nothing. The tool repeats the secret of the server.
func respond(request []byte, secret string) []byte {
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Version string `json:"protocolVersion"`
		} `json:"params"`
	}
	if json.Unmarshal(request, &q) != nil || q.ID == nil {
		return nil
	}
	doc := map[string]any{"jsonrpc": "2.0", "id": q.ID}
	switch q.Method {
	case "initialize":
		doc["result"] = map[string]any{"protocolVersion": q.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]string{"name": "canary", "version": "1"}}
	case "ping":
		doc["result"] = map[string]any{}
	case "tools/list":
		doc["result"] = map[string]any{"tools": []any{map[string]any{"name": "check", "description": "Checks its key.", "inputSchema": map[string]string{"type": "object"}, "annotations": map[string]bool{"readOnlyHint": true}}}}
	case "tools/call":
		doc["result"] = map[string]any{"content": []any{map[string]string{"type": "text", "text": careless(secret)}}}
	default:
		doc["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		panic(err) // of the test
	}
	return out
}

// careless is an answer that repeats a secret.
func careless(secret string) string {
	return fmt.Sprintf("used %d characters: %s, %s, %s", len(secret), secret, base64.StdEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret))
}

// servers are what tools reach with secrets: an MCP server that agentd starts, one over HTTP, and an address of the web.
type servers struct {
	secrets  secrets
	mcp, web *httptest.Server
	used     [2]atomic.Int64 // requests with the right secret, of mcp and web
}

// startServers starts them, and notes their secrets in s.
func startServers(t *testing.T, s secrets) *servers {
	t.Helper()
	s[serverEnv], s[serverHeader], s[webSecret] = canary("mcp"), canary("head"), canary("web")
	v := &servers{secrets: s}
	v.mcp = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a request is answered too
		switch got := r.Header.Get("X-Api-Key"); {
		case got != s[serverHeader]:
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			v.used[0].Add(1)
			doc := respond(body, got)
			if doc == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(doc) // a client that has gone away sees nothing
		}
	}))
	t.Cleanup(v.mcp.Close)
	v.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if got == s[webSecret] {
			v.used[1].Add(1)
		}
		_, _ = io.WriteString(w, careless(got)) // a client that has gone away sees nothing
	}))
	t.Cleanup(v.web.Close)
	return v
}

// env are the variables that the settings refer to.
func (v *servers) env() []string {
	return []string{"CANARY_MCP=" + v.secrets[serverEnv], "CANARY_HEAD=" + v.secrets[serverHeader], "CANARY_WEB=" + v.secrets[webSecret]}
}

// settings are those of the home.
func (v *servers) settings(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	return fmt.Sprintf(`mcp:
  servers:
    local: {command: [%q], env: {%s: "env:CANARY_MCP"}}
    remote: {url: %q, headers: {X-Api-Key: "env:CANARY_HEAD"}}
secrets:
  WEB: {ref: "env:CANARY_WEB", hosts: [%q]}
tools: {http: {allow_private: [127.0.0.1/32]}}
`, self, serverVariable, v.mcp.URL, strings.TrimPrefix(v.web.URL, "http://"))
}

// calls are the calls of the tools that need the secrets, for the script of the model.
func (v *servers) calls() string {
	call := func(n int, name, arguments string) string {
		return fmt.Sprintf(`{"index":%d,"id":"c%d","type":"function","function":{"name":%q,"arguments":%q}}`, n, n, name, arguments)
	}
	return fmt.Sprintf(`{"tool_calls":[%s,%s,%s]},"finish_reason":"tool_calls"`, call(0, "local__check", "{}"), call(1, "remote__check", "{}"),
		call(2, "http_request", fmt.Sprintf(`{"method":"GET","url":%q,"headers":{"Authorization":"Bearer {{secret:WEB}}"}}`, v.web.URL)))
}

// use approves the tools of the servers and has a model call them. Each server answers with its secret.
func (v *servers) use(t *testing.T, site *world.Site, ctl func(line string), asked func() string) {
	t.Helper()
	for _, name := range []string{"local", "remote"} {
		ctl("mcp test " + name + " --agent a1")
		ctl("mcp approve " + name + " --yes")
	}
	site.Say(t, "a1", world.Peer("p4"), "please connect")
	if v.used[0].Load() == 0 || v.used[1].Load() != 1 {
		t.Fatalf("%d requests have the header, %d the secret of the web tools", v.used[0].Load(), v.used[1].Load())
	}
	text := asked()
	for _, place := range []string{serverEnv, serverHeader, webSecret} {
		if used := fmt.Sprintf("used %d characters: ", len(v.secrets[place])); !strings.Contains(text, used) {
			t.Fatalf("the %s was never used, so nothing is shown: %.3000s", place, text)
		}
	}
}
