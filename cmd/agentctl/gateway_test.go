//go:build proof

package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
)

// S2-03, S2-04: the gateway in the foreground listens at the port of the flag, is agentd for ps, and
// ends with Ctrl-C; next to another one it says what to do.
func TestGatewayRun(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	command := func(args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(built(t), "agentctl"), append([]string{"gateway", "run"}, args...)...)
		c.Env = []string{"THECLAW_HOME=" + home, "PORT=1"}
		return c
	}
	c := command("--port", "0", "--profile", "dev")
	errs, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	address := regexp.MustCompile(`serving HTTP.* address=(127\.0\.0\.1:\d+)`)
	lines, log, at := bufio.NewScanner(errs), &strings.Builder{}, ""
	for at == "" && lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			at = m[1]
		}
	}
	if at == "" || strings.HasSuffix(at, ":1") {
		t.Fatalf("it does not listen, or at %s:\n%s", at, log)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/healthz", nil)
	must(t, err)
	got, err := http.DefaultClient.Do(request)
	must(t, err)
	defer got.Body.Close()
	if b, err := io.ReadAll(got.Body); err != nil || string(b) != "ok\n" {
		t.Errorf("%s, %v", b, err)
	}
	ps, err := exec.Command(need.Program(t, "ps", "procps"), "-eo", "comm,args").Output()
	must(t, err)
	if !regexp.MustCompile(`(?m)^agentd +/.*/agentd gateway --port 0$`).Match(ps) || !regexp.MustCompile(`(?m)^agentctl +/.*/agentctl gateway run --port 0`).Match(ps) {
		t.Errorf("ps shows\n%s", ps)
	}
	if _, err := os.Stat(home + "-dev/run/gateway.sock"); err != nil {
		t.Errorf("the home of the profile: %v", err)
	}
	second := command("--port", "0", "--profile", "dev")
	if out, err := second.CombinedOutput(); second.ProcessState.ExitCode() != 1 || !bytes.Contains(out, []byte("another process serves the gateway")) {
		t.Errorf("a second one: %v\n%s", err, out)
	}
	must(t, c.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(errs)
	must(t, err)
	if err := c.Wait(); err != nil || !strings.Contains(log.String()+string(rest), "draining") && !bytes.Contains(rest, []byte("draining")) {
		t.Errorf("it ends with %v:\n%s%s", err, log, rest)
	}
}

// S2-08: the version is printed without a connection, also to services of this machine.
func TestVersionOpensNoSocket(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	c := exec.Command(need.Program(t, "strace", "strace"), "-f", "-e", "trace=network,execve", "-o", trace, filepath.Join(built(t), "agentctl"), "--version")
	c.Env = []string{"THECLAW_HOME=" + t.TempDir()}
	out, err := c.CombinedOutput()
	must(t, err)
	calls, err := os.ReadFile(trace)
	must(t, err)
	if !bytes.Contains(calls, []byte("execve(")) || bytes.Contains(calls, []byte("socket(")) || bytes.Contains(calls, []byte("connect(")) {
		t.Errorf("%s\n%s", out, calls)
	}
}
