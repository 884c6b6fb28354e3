//go:build proof

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fakeSystemctl is the part of systemd that the service uses: it runs the unit as it is
// written, records its calls, and refuses all that it does not know.
const fakeSystemctl = `#!/bin/sh
state=STATE unit=UNIT
echo "$*" >>"$state/calls"
[ "$1" = --user ] || { echo "System has not been booted with systemd as init system" >&2; exit 1; }
[ ! -e "$state/away" ] || { echo "Failed to connect to user scope bus via local transport: No medium found" >&2; exit 1; }
shift
alive() { [ -s "$state/pid" ] && kill -0 "$(cat "$state/pid")" 2>/dev/null; }
start() {
  alive && return
  [ -e "$unit" ] || { echo "Failed to start theclaw.service: Unit theclaw.service not found." >&2; exit 5; }
  program=$(sed -n 's/^ExecStart="\(.*\)" all$/\1/p' "$unit")
  home=$(sed -n 's/^Environment="THECLAW_HOME=\(.*\)"$/\1/p' "$unit")
  env -i THECLAW_HOME="$home" HOME="$home" PATH=/usr/bin:/bin setsid "$program" all >"$state/log" 2>&1 </dev/null &
  echo $! >"$state/pid"
}
stop() { if alive; then kill "$(cat "$state/pid")"; while alive; do sleep 0.02; done; fi; : >"$state/pid"; }
case "$# $*" in
"1 daemon-reload") ;;
"2 enable theclaw.service") [ -e "$unit" ] && touch "$state/enabled" ;;
"3 disable --now theclaw.service") rm -f "$state/enabled"; stop ;;
"2 start theclaw.service") start ;;
"2 restart theclaw.service") stop; start ;;
"2 stop theclaw.service") stop ;;
"2 show --property=Version") echo Version=252 ;;
"3 show --property=ActiveState,UnitFileState,MainPID theclaw.service")
  if alive; then echo ActiveState=active; else echo ActiveState=inactive; fi
  echo "MainPID=$(cat "$state/pid" 2>/dev/null || echo 0)"
  if [ -e "$state/enabled" ]; then echo UnitFileState=enabled; else echo UnitFileState=; fi ;;
*) echo "Unknown command verb $1." >&2; exit 1 ;;
esac
`

// userService is a user with a systemd of its own.
type userService struct {
	t           *testing.T
	dir, home   string
	environment map[string]string
}

func newUserService(t *testing.T) *userService {
	t.Helper()
	dir := t.TempDir()
	u := &userService{t: t, dir: dir, home: filepath.Join(dir, "home")}
	u.environment = map[string]string{"HOME": dir, "THECLAW_HOME": u.home, "PATH": dir + "/bin:" + os.Getenv("PATH")}
	must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
	text := strings.NewReplacer("STATE", "'"+dir+"/state'", "UNIT", "'"+u.unit()+"'").Replace(fakeSystemctl)
	must(t, os.WriteFile(filepath.Join(dir, "bin", "systemctl"), []byte(text), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "bin", "journalctl"), []byte("#!/bin/sh\n[ \"$*\" = \"--user-unit theclaw.service --no-pager --lines 3\" ] || exit 9\ntail -n 3 '"+dir+"/state/log'\n"), 0o700))
	t.Setenv("PATH", built(t)+":"+os.Getenv("PATH")) // where agentd is found
	t.Cleanup(func() {
		if pid := u.pid(); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return u
}

func (u *userService) unit() string { return u.dir + "/.config/systemd/user/theclaw.service" }

func (u *userService) pid() int {
	b, _ := os.ReadFile(filepath.Join(u.dir, "state", "pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// run is one command line; the calls of systemctl that it made are answered too.
func (u *userService) run(code int, in string, args ...string) (out string, calls []string) {
	u.t.Helper()
	log := filepath.Join(u.dir, "state", "calls")
	must(u.t, os.WriteFile(log, nil, 0o600))
	var stdout, stderr bytes.Buffer
	got := Main(args, strings.NewReader(in), &stdout, &stderr, func(name string) string { return u.environment[name] })
	if got != code {
		u.t.Fatalf("agentctl %q: exit %d, want %d\n%s%s", args, got, code, &stdout, &stderr)
	}
	b, err := os.ReadFile(log)
	must(u.t, err)
	if text := strings.TrimSpace(string(b)); text != "" {
		calls = strings.Split(text, "\n")
	}
	return stdout.String() + stderr.String(), calls
}

const show = "--user show --property=ActiveState,UnitFileState,MainPID theclaw.service"

func TestService(t *testing.T) {
	u := newUserService(t)
	expect := func(code int, want string, calls []string, args ...string) {
		t.Helper()
		out, got := u.run(code, "", args...)
		if !strings.Contains(out, want) {
			t.Errorf("agentctl %q: without %q:\n%s", args, want, out)
		}
		if calls != nil && !slices.Equal(got, calls) {
			t.Errorf("agentctl %q calls %q, want %q", args, got, calls)
		}
	}
	for _, verb := range []string{"start", "stop"} {
		expect(1, "Error: the service is not installed - install it with 'agentctl service install'", []string{}, "service", verb)
	}
	expect(0, "theclaw.service: not installed", []string{}, "service", "uninstall")
	expect(0, "installed "+u.unit(), []string{"--user show --property=Version", "--user daemon-reload", "--user enable theclaw.service"}, "service", "install")
	before, err := os.ReadFile(u.unit())
	must(t, err)
	expect(0, "is installed already", []string{"--user daemon-reload", "--user enable theclaw.service"}, "service", "install")
	if after, err := os.ReadFile(u.unit()); err != nil || !bytes.Equal(before, after) {
		t.Error(err, "the unit has changed")
	}
	expect(1, "is the service of another home", []string{}, "service", "install", "--home", u.home+"2")
	expect(1, "inactive", []string{show}, "service", "status")
	expect(0, "theclaw.service: started", nil, "service", "start")
	expect(0, `"active": "active"`, []string{show}, "service", "status", "--json")
	expect(0, "serving", nil, "ready")
	expect(0, "msg=serving", []string{}, "service", "logs", "--lines", "3")
	expect(2, "--lines is 1 to 100000", []string{}, "service", "logs", "--lines", "0")
	expect(0, "theclaw.service: stopped", []string{"--user stop theclaw.service"}, "service", "stop")
	expect(1, "inactive", nil, "service", "status")

	// Services that run otherwise are not in its way: it says so.
	stop := services(t, u.home)
	expect(1, "agentd serves this home already, and not as the service", []string{show}, "service", "start")
	stop()

	// Without a manager of this user nothing is written.
	expect(0, "theclaw.service: uninstalled", []string{"--user disable --now theclaw.service", "--user daemon-reload"}, "service", "uninstall")
	must(t, os.WriteFile(filepath.Join(u.dir, "state", "away"), nil, 0o600))
	expect(1, "not by su or sudo", []string{"--user show --property=Version"}, "service", "install")
	if _, err := os.Stat(u.unit()); err == nil {
		t.Error("a unit was written")
	}
	must(t, os.Remove(filepath.Join(u.dir, "state", "away")))
	if _, err := os.Stat(filepath.Join(u.home, "registry.db")); err != nil {
		t.Error("the home was not kept:", err)
	}
}

// setup with --service: the service runs with the key that was stored, and a new model is
// in force when setup has ended.
func TestSetupService(t *testing.T) {
	model := newModel(t, "good-key-0123456789")
	u := newUserService(t)
	key := filepath.Join(u.dir, "key")
	must(t, os.WriteFile(key, []byte(model.key+"\n"), 0o600))
	args := []string{"setup", "--yes", "--provider", "work", "--base-url", model.url, "--model", "m1", "--key-file", key, "--service", "--agent", "a1"}
	out, _ := u.run(0, "hello\n", args...)
	if !strings.Contains(out, "hello from m1") {
		t.Error(out)
	}
	first := u.pid()
	if out, calls := u.run(0, "hello\n", args...); !strings.Contains(out, "is as it was") || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "restart") }) {
		t.Error("the second run:", out, calls)
	}
	if u.pid() != first {
		t.Error("the second run has started the service again")
	}
	args[slices.Index(args, "m1")] = "m2"
	if out, _ := u.run(1, "hello\n", args...); !strings.Contains(out, "says something else") {
		t.Error(out)
	}
	out, calls := u.run(0, "hello\n", append(args, "--replace")...)
	if !strings.Contains(out, "hello from m2") || !slices.Contains(calls, "--user restart theclaw.service") {
		t.Error(out, fmt.Sprint(calls))
	}
	u.run(0, "", "service", "uninstall")
}
