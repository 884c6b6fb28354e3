package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
)

// toolRow is a tool as agentctl prints it for programs.
type toolRow struct {
	Name, Class, Sends, Denied string
	Offered                    bool
}

// S0-103, S4-59, S4-60: a person sees which tools an agent has, and which layer of the settings
// denies another one. A new agent has the one tool that runs commands.
func TestTools(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	do := person(w)
	if rows := answerOf[[]toolRow](t, do, "tools", "list", "a1"); len(rows) != 1 || rows[0].Name != "bash_exec" || rows[0].Class != "effect" || rows[0].Sends != "" {
		t.Errorf("%+v", rows)
	}
	for _, c := range []struct{ set, line, want string }{
		{"", "tools explain a1 bash_exec", "bash_exec   allowed by all layers: 1 profile \"theclaw\"\n"},
		{"", "tools explain a1 exec", "bash_exec   allowed by all layers: 1 profile \"theclaw\"\n"},
		{"", "tools explain a1 message", "message_send   denied by layer 1 profile \"theclaw\": no entry of allow\n"},
		{"config set a1 tools.profile messaging", "tools explain a1 bash_exec", "bash_exec   denied by layer 1 profile \"messaging\": no entry of allow\n"},
		{"", "tools explain a1 message", "message_send   allowed by all layers: 1 profile \"messaging\"\n"},
		{"", "tools explain a1 session_status", "session_status   allowed by all layers: 1 profile \"messaging\"\n"},
		{"config set a1 tools.deny [group:messaging,session_status]", "tools explain a1 message", "message_send   denied by layer 5 agent: tools.deny [\"group:messaging\"]; allowed by 1 profile \"messaging\"\n"},
	} {
		if c.set != "" {
			done(t, do, strings.Fields(c.set)...)
		}
		if o := do(strings.Fields(c.line)...); o.out != c.want || o.code != 0 {
			t.Errorf("agentctl %s\n%s%swant\n%s", c.line, o.out, o.err, c.want)
		}
	}
	if rows := answerOf[[]toolRow](t, do, "tools", "list", "a1"); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	for _, r := range answerOf[[]toolRow](t, do, "tools", "list", "a1", "--all") {
		if r.Offered || !strings.HasPrefix(r.Denied, "denied by layer ") {
			t.Errorf("%+v", r)
		}
	}
	fails(t, do, 1, "there is no tool \"bash_exek\"", "tools", "explain", "a1", "bash_exek")
	fails(t, do, 2, "there is no group", "config", "set", "a1", "tools.deny", "[group:none]")
	done(t, do, "config", "set", "a1", "tools.allow", "[exec]")
	fails(t, do, 2, "keep one of them", "config", "set", "a1", "tools.also_allow", "[read]")
}

// S2-52, S3-44, S4-65: one task with several tools: a file is read, a change of it tested, and
// explain shows each step. A tool that is denied is not offered.
func TestToolsWorkOnFiles(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []\nsandbox: {mode: 'off'}\ntools:\n  profile: coding\n  deny: [write]")
	dir := filepath.Join(w.Home, "agents/a1/workdir")
	for name, text := range map[string]string{"add.sh": "add() { echo $(($1 - $2)); }\n", "test.sh": ". ./add.sh\ntest \"$(add 2 3)\" = 5 && echo passed || echo failed\n"} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	do := person(w)
	o := done(t, do, "agent", "a1", "--wait", "--message", strings.Join([]string{
		`call: read {"path":"add.sh"}`,
		`call: bash_exec {"command":"sh test.sh"}`,
		`call: edit {"path":"add.sh","old_text":"$1 - $2","new_text":"$1 + $2"}`,
		`call: bash_exec {"command":"sh test.sh"}`,
	}, "\n"))
	if !strings.Contains(o.out, "the command answered:\npassed\n") {
		t.Errorf("%s%s", o.out, o.err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "add.sh"))
	if err != nil || string(b) != "add() { echo $(($1 + $2)); }\n" {
		t.Errorf("%q %v", b, err)
	}
	if o := done(t, do, "agent", "a1", "--wait", "--message", `call: write {"path":"add.sh","content":""}`); !strings.Contains(o.out, "the tool write is not offered") {
		t.Errorf("%s%s", o.out, o.err)
	}
	said := done(t, do, "explain", "a1", "1").out
	for _, want := range []string{
		`read add.sh (read): answered {"text":"add() { echo $(($1 - $2)); }`,
		`edited add.sh: replaced 1 occurrence, in line 1`,
	} {
		if !strings.Contains(strings.ReplaceAll(said, `\"`, `"`), want) {
			t.Errorf("explain does not show %s:\n%s", want, said)
		}
	}
	said = done(t, do, "explain", "a1", "1", "--diff").out
	if want := "\nedit (tool:3:1)\n--- a/add.sh\n+++ b/add.sh\n@@ -1 +1 @@\n-add() { echo $(($1 - $2)); }\n+add() { echo $(($1 + $2)); }\n"; !strings.HasSuffix(said, want) {
		t.Errorf("%s\ndoes not end with%s", said, want)
	}
	if o := done(t, do, "explain", "a1", "2", "--diff"); !strings.Contains(o.err, "No changes of files by tools are kept") {
		t.Errorf("%s%s", o.out, o.err)
	}
	var row struct {
		Changes []struct{ Step, Tool, Path, Diff string }
	}
	if row = answerOf[struct {
		Changes []struct{ Step, Tool, Path, Diff string }
	}](t, do, "explain", "a1", "1", "--diff"); len(row.Changes) != 1 || row.Changes[0].Path != "add.sh" || row.Changes[0].Tool != "edit" {
		t.Errorf("%+v", row)
	}
}

// S2-52, S3-43, S3-44, S3-47, S4-65: an agent that init has just made does one task: it reads a repository, changes
// a file, runs the test in the sandbox, reads a page, and answers. explain shows each step, and --diff the
// change. One setting allows the page, which is on this machine.
func TestFirstTask(t *testing.T) {
	need.Namespaces(t, "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>Rules</title><body><p>Sums are added, not subtracted.</p></body></html>")
	}))
	defer page.Close()
	w := world.Start(t, world.Options{})
	do := person(w)
	done(t, do, "init", "work")
	if err := os.WriteFile(filepath.Join(w.Home, "theclaw.yaml"), []byte("tools: {web_fetch: {allow_private: [127.0.0.0/8]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, do, "start", "work")
	dir := filepath.Join(w.Home, "agents/work/workdir")
	for name, text := range map[string]string{"add.sh": "add() { echo $(($1 - $2)); }\n", "test.sh": ". ./add.sh\ntest \"$(add 2 3)\" = 5 && echo passed || echo failed\n"} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	o := done(t, do, "agent", "work", "--wait", "--message", strings.Join([]string{
		`call: find {"pattern":"*.sh"}`,
		`call: read {"path":"add.sh"}`,
		`call: web_fetch {"url":"` + page.URL + `"}`,
		`call: edit {"path":"add.sh","old_text":"$1 - $2","new_text":"$1 + $2"}`,
		`call: bash_exec {"command":"sh test.sh"}`,
	}, "\n"))
	if !strings.Contains(o.out, "the command answered:\npassed\n") {
		t.Errorf("%s%s", o.out, o.err)
	}
	said := strings.ReplaceAll(done(t, do, "explain", "work", "1", "--diff").out, `\"`, `"`)
	for _, want := range []string{
		": find ", ": read ", ": web_fetch ", "its result is text from outside", ": edit ", ": exec ", `"status":200`, "replaced 1 occurrence",
		"\n-add() { echo $(($1 - $2)); }\n+add() { echo $(($1 + $2)); }\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("explain does not show %s:\n%s", want, said)
		}
	}
}

// S4-08, S4-09, S4-59, S4-75, S4-76: an agent of the flavor openclaw has its main conversation on the host, where the
// policy for commands decides, and a group in the sandbox, with fewer tools and a scratch directory. A person sees
// which of the layers decides, and where programs run. With access ro they read the workspace.
func TestConversationsDiffer(t *testing.T) {
	need.Namespaces(t, "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc")
	w := world.Start(t, world.Options{})
	home := "flavor: openclaw\nchannels: {tg: {type: telegram, tools: {group: {deny: [cron, process]}}}}\ntools: {by_provider: {offline: {deny: [grep]}}}\n"
	if err := os.WriteFile(filepath.Join(w.Home, "theclaw.yaml"), []byte(home), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Create(t, "a1", "outbound: []\npai: {provider: offline}\ntools: {exec: {ask: 'off'}}\n")
	do := person(w)
	const group = "agent:a1:telegram:group:-100"
	for _, c := range []struct{ line, want string }{
		{"tools explain a1 exec", "exec   allowed by all layers: 1 profile \"full\", 4 home by provider\n"},
		{"tools explain a1 grep", "grep   denied by layer 4 home by provider: tools.by_provider.offline.deny [\"grep\"]; allowed by 1 profile \"full\"\n"},
		{"tools explain a1 process --session " + group, "process   denied by layer 7 conversation: channels.tg.tools.group.deny [\"process\"]; allowed by 1 profile \"full\", 4 home by provider, 8 sandbox\n"},
		{"tools explain a1 web_fetch --session " + group, "web_fetch   denied by layer 8 sandbox: no entry of tools.sandbox.tools.allow; allowed by 1 profile \"full\", 4 home by provider, 7 conversation\n"},
		{"sandbox explain a1", "sandboxed no (mode non-main, session is main) - host commands: by policy allowlist, ask off\n"},
		{"sandbox explain a1 --session " + group, "sandboxed yes (mode non-main, session is not main) - driver full - scope agent \"agent:a1\" - workspace none - network off - host commands: not possible\n"},
	} {
		if o := do(strings.Fields(c.line)...); o.out != c.want || o.code != 0 {
			t.Errorf("agentctl %s\n%s%swant\n%s", c.line, o.out, o.err, c.want)
		}
	}
	fails(t, do, 2, "is a conversation of agent 'b'", "tools", "list", "a1", "--session", "agent:b:main")
	ask := func(key, text string) string {
		return done(t, do, "agent", "a1", "--session", key, "--wait", "--message", text).out
	}
	if out := ask(group, `call: exec {"command":"pwd; echo group >note; cat note"}`); !strings.Contains(out, filepath.Join(w.Home, "sandboxes", "agent-a1-d4f1bd6b")) || !strings.Contains(out, "group\n") {
		t.Errorf("in the group: %s", out)
	}
	if b, err := os.ReadFile(filepath.Join(w.Home, "sandboxes", "agent-a1-d4f1bd6b", "note")); err != nil || string(b) != "group\n" {
		t.Errorf("%q, %v", b, err)
	}
	if out := ask(group, `call: read {"path":"note"}`); !strings.Contains(out, "group") {
		t.Errorf("the file tools work elsewhere: %s", out)
	}
	if out := ask("agent:a1:main", `call: exec {"command":"touch made"}`); !strings.Contains(out, "nothing was run") {
		t.Errorf("on the host: %s", out)
	}
	done(t, do, "config", "set", "a1", "sandbox.workspace_access", "ro")
	workspace := filepath.Join(w.Home, "workspace-a1")
	if err := os.WriteFile(filepath.Join(workspace, "page"), []byte("read me\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ask(group, `call: exec {"command":"cat page; echo x 2>&1 >page || echo refused; cat $TMPDIR/note; pwd"}`); !strings.Contains(out, "read me\n") ||
		!strings.Contains(out, "refused\ngroup\n"+workspace+"\n") {
		t.Errorf("a workspace that is read: %s", out)
	}
	want := "write   denied by layer 8 sandbox, sandbox.workspace_access ro: deny [\"write\"]; allowed by 1 profile \"full\", 4 home by provider, 7 conversation, 8 sandbox\n"
	if o := do("tools", "explain", "a1", "write", "--session", group); o.out != want {
		t.Errorf("%s%swant\n%s", o.out, o.err, want)
	}
}
