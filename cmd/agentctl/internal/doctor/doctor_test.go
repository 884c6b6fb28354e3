package doctor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/rpc/mtls"
	gateway "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

func examine(t *testing.T, home string) *examination {
	t.Helper()
	var out, errs bytes.Buffer
	return &examination{env: command.New(nil, &out, &errs, func(string) string { return "" }, "test"), home: layout.At(home)}
}

// has tells whether a finding of this status has these words, and a fix.
func (x *examination) has(status, words string) bool {
	for _, f := range x.findings {
		if f.Status == status && strings.Contains(f.Detail+" "+f.Fix, words) && (status == ok) == (f.Fix == "") {
			return true
		}
	}
	return false
}

// Everything in a home is for its owner alone (I16).
func TestDirectory(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	x := examine(t, home)
	x.directory(t.Context())
	if !x.has(problem, "does not exist") {
		t.Errorf("missing: %+v", x.findings)
	}
	if err := os.MkdirAll(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	x = examine(t, home)
	x.directory(t.Context())
	x.disk()
	if !x.has(ok, home) || len(x.findings) != 2 {
		t.Errorf("good: %+v", x.findings)
	}
	token := filepath.Join(home, "run", "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{token: 0o640, home: 0o755} {
		if err := os.Chmod(path, mode); err != nil { // the umask has no say
			t.Fatal(err)
		}
	}
	x = examine(t, home)
	x.directory(t.Context())
	if !x.has(problem, "chmod 600 "+token) || !x.has(problem, "chmod 700 "+home) || x.has(ok, home) {
		t.Errorf("open to others: %+v", x.findings)
	}
	x = examine(t, filepath.Join(home, strings.Repeat("x", 120)))
	if err := os.Mkdir(x.home.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	x.directory(t.Context())
	if !x.has(problem, "shorter path") {
		t.Errorf("long path: %+v", x.findings)
	}
}

// A lock of a dead process stops the external dispatch; a fresh one, and one of a
// living process, does not concern us.
func TestLocks(t *testing.T) {
	inbox := t.TempDir()
	if err := os.Mkdir(filepath.Join(inbox, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	lock := func(name string, pid int, age time.Duration) {
		t.Helper()
		path := filepath.Join(inbox, "run", name)
		if err := os.WriteFile(path, []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	lock("fresh.lock", gone.ProcessState.Pid(), 0)
	lock("alive.lock", os.Getpid(), time.Hour)
	x := examine(t, inbox)
	x.locks("a1", inbox)
	if len(x.findings) != 0 {
		t.Errorf("%+v", x.findings)
	}
	lock("inbox.lock", gone.ProcessState.Pid(), time.Hour)
	x.locks("a1", inbox)
	if !x.has(problem, "rm "+filepath.Join(inbox, "run", "inbox.lock")) || len(x.findings) != 1 {
		t.Errorf("%+v", x.findings)
	}
}

func TestModelAndSandbox(t *testing.T) {
	for _, c := range []struct{ provider, sandbox, status, words string }{
		{"openai", "full", ok, "openai (environment)"},
		{"offline", "full", warning, "OPENAI_API_KEY"},
		{"", "full", problem, "providers.yaml"},
		{"openai", "reduced", warning, "reduced: no user namespaces"},
		{"openai", "none", problem, "so none is run: no user namespaces"},
		{"openai", "bubblewrap", ok, "bubblewrap"},
	} {
		x := examine(t, "/h")
		info := &runner.GetRunnerInfoResponse{Provider: c.provider, ProviderOrigin: "environment", Sandbox: c.sandbox, SandboxProblems: []string{"no user namespaces"}}
		x.model(t.Context(), info)
		x.sandbox(info)
		if !x.has(c.status, c.words) {
			t.Errorf("%+v: %+v", c, x.findings)
		}
	}
}

// The exit code is that of a failure exactly when there is a problem.
func TestReport(t *testing.T) {
	x := examine(t, "/h")
	x.good("a", "fine")
	x.note("b", warning, "do this", "hm")
	if err := x.report(options{}); err != nil {
		t.Errorf("warnings are no failure: %v", err)
	}
	x.note("c", problem, "do that", "oh")
	if err := x.report(options{}); err == nil {
		t.Error("a problem is a failure")
	}
}

// What others can get at, or cannot be used any more, is said; --fix ends what it
// may, and a link does not lead it out of the home.
func TestCertsAndLinks(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	x := examine(t, home)
	x.certs()
	if len(x.findings) != 0 {
		t.Errorf("no certificates: %+v", x.findings)
	}
	a, err := mtls.Init(filepath.Join(home, "tls"), "d.test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, life := range map[string]time.Duration{"runner": -time.Minute, "owner": 90 * 24 * time.Hour} {
		if _, err := a.Issue(name, life); err != nil {
			t.Fatal(err)
		}
	}
	x.certs()
	if !x.has(problem, "runner: it has ended") || !x.has(warning, "ca: it ends in 0 days agentctl certs rotate --ca") || len(x.findings) != 3 { // nothing outlives its authority
		t.Errorf("%+v", x.findings)
	}
	exposed := filepath.Join(home, "exposed")
	if err := os.WriteFile(exposed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{exposed, outside} {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x = examine(t, home)
	x.files(t.Context())
	if len(x.mends) != 1 {
		t.Fatalf("%+v", x.findings)
	}
	if err := errors.Join(os.Remove(exposed), os.Symlink(outside, exposed)); err != nil {
		t.Fatal(err)
	}
	x.fix(t.Context(), false)
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o644 || x.fixes[0].Done || x.findings[0].Fixed {
		t.Errorf("%v %v, %+v", info, err, x.fixes)
	}
}

// R3: logs of the external thread tool below a private directory are a warning in one line.
func TestThreadToolLogs(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	logs := filepath.Join(home, "agents", "a1", "inbox", "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"thread.log", "thread-1.log"} {
		if err := errors.Join(os.WriteFile(filepath.Join(logs, name), nil, 0o600), os.Chmod(filepath.Join(logs, name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	x := examine(t, home)
	x.files(t.Context())
	if len(x.findings) != 1 || !x.has(warning, "2 logs of the external thread tool have a mode such as 644") {
		t.Errorf("%+v", x.findings)
	}
	x.fix(t.Context(), false)
	if info, err := os.Stat(filepath.Join(logs, "thread.log")); err != nil || info.Mode().Perm() != 0o600 || !x.findings[0].Fixed {
		t.Errorf("%v, %v, %+v", info, err, x.findings)
	}
}

// S4-78: an agent with a container: that docker does not work is a problem, and that it is weaker is noted.
func TestDocker(t *testing.T) {
	for _, c := range []struct {
		box           *runner.SandboxInfo
		status, words string
	}{
		{&runner.SandboxInfo{Sandboxed: true, Level: "docker", Problem: "no docker", ProblemFix: "install docker"}, problem, "install docker"},
		{&runner.SandboxInfo{Sandboxed: true, Level: "docker"}, warning, "root on the host"},
		{&runner.SandboxInfo{Sandboxed: true, Level: "docker"}, warning, "leaves its process group"},
		{&runner.SandboxInfo{}, ok, "on the host"},
	} {
		x := examine(t, t.TempDir())
		x.docker("a1", c.box)
		if !x.has(c.status, c.words) || len(x.findings) != 1 {
			t.Errorf("%v: %+v", c.box, x.findings)
		}
	}
}

// Each state of an account but up has its fix; a late message and a clock that is off are warnings.
func TestAccounts(t *testing.T) {
	for name, c := range map[string]struct {
		channel       *gateway.Channel
		status, words string // empty: nothing is found
	}{
		"up":             {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_UP, Lag: durationpb.New(time.Minute)}, "", ""},
		"standby":        {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_STANDBY}, "", ""},
		"off":            {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_OFF}, ok, "is off"},
		"starting":       {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_STARTING, Since: timestamppb.Now()}, "", ""},
		"long":           {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_STARTING}, warning, "is starting"},
		"conflict":       {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_CONFLICT}, problem, "stop the other program"},
		"auth":           {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_AUTH}, problem, "correct the secret; then start agentd again where it is a variable, else 'agentctl channels restart auth'"},
		"error":          {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_ERROR}, problem, "correct what it names"},
		"stopped":        {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_STOPPED}, problem, "set gateway.http"},
		"late":           {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_UP, Lag: durationpb.New(90 * time.Second)}, warning, "stored 1m30s after it was sent"},
		"clock":          {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_UP, Behind: durationpb.New(2 * time.Minute)}, warning, "is 2m0s behind that of the sender of the last message of account clock"},
		"clock a little": {&gateway.Channel{State: gateway.ChannelState_CHANNEL_STATE_UP, Behind: durationpb.New(time.Minute)}, "", ""},
	} {
		x := examine(t, t.TempDir())
		c.channel.Name = name
		x.account(c.channel)
		if want := c.status != ""; len(x.findings) > 1 || (len(x.findings) == 1) != want || want && !x.has(c.status, c.words) {
			t.Errorf("%s: %+v", name, x.findings)
		}
	}
}
