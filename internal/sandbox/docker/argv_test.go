package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-72: each of the 13 keys of the settings is an argument of docker. The keys of which a row says nothing have
// their defaults.
func TestCreateArguments(t *testing.T) {
	const defaults = "--init --pids-limit 1024 --read-only --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --network none --user 1000:1001 " +
		"--cap-drop ALL --security-opt no-new-privileges --env LANG=C.UTF-8 --mount type=bind,source=/w,target=/workspace " +
		"--workdir /workspace --entrypoint sleep " + image + " infinity"
	for _, c := range []struct {
		key      string
		set      func(b *Box)
		from, to string // of the arguments
	}{
		{"defaults", func(*Box) {}, "", ""},
		{"image", func(b *Box) { b.Image = "debian:12" }, image, "debian:12"},
		{"workdir", func(b *Box) { b.Workdir = "/w2" }, "target=/workspace --workdir /workspace", "target=/w2 --workdir /w2"},
		{"read_only_root", func(b *Box) { b.ReadOnlyRoot = false }, "--read-only ", ""},
		{"network", func(b *Box) { b.Network = "bridge" }, "--network none", "--network bridge"},
		{"user", func(b *Box) { b.User = "sandbox" }, "--user 1000:1001", "--user sandbox"},
		{"cap_drop", func(b *Box) { b.CapDrop = []string{"NET_RAW", "MKNOD"} }, "--cap-drop ALL", "--cap-drop NET_RAW --cap-drop MKNOD"},
		{"env", func(b *Box) { b.Env = map[string]string{"B": "2", "A": "1 x"} }, "--env LANG=C.UTF-8", "--env A=1 x --env B=2"},
		{"memory", func(b *Box) { b.Memory = "512m" }, "--env LANG", "--memory 512m --env LANG"},
		{"cpus", func(b *Box) { b.Cpus = "1.5" }, "--env LANG", "--cpus 1.5 --env LANG"},
		{"seccomp_profile", func(b *Box) { b.SeccompProfile = "/etc/s.json" }, "no-new-privileges", "no-new-privileges --security-opt seccomp=/etc/s.json"},
		{"apparmor_profile", func(b *Box) { b.ApparmorProfile = "box" }, "no-new-privileges", "no-new-privileges --security-opt apparmor=box"},
		{"binds", func(b *Box) { b.Binds = []string{"/a:/a:ro", "/b:/b"} }, "--workdir", "--mount type=bind,source=/a,target=/a,readonly --mount type=bind,source=/b,target=/b --workdir"},
		{"binds, rw and a comma", func(b *Box) { b.Binds = []string{"/a,b:/c:rw"} }, "--workdir", `--mount type=bind,"source=/a,b",target=/c --workdir`},
		{"access none and rw, a comma", func(b *Box) { b.Dir = `/w,"x"` }, "type=bind,source=/w,", `type=bind,"source=/w,""x""",`},
		{"access ro", func(b *Box) { b.ReadOnly, b.Temp = true, "/s" }, "target=/workspace --workdir", "target=/workspace,readonly --mount type=bind,source=/s,target=/workspace-scratch --workdir"},
	} {
		b := Box{DockerSandbox: settings(), Dir: "/w"}
		c.set(&b)
		want := strings.Replace(defaults, c.from, c.to, 1)
		if got := strings.Join(b.settings(1000, 1001), " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.key, got, want)
		}
	}
	b := Box{DockerSandbox: settings(), Dir: "/w", Fence: "agent/a1=3"}
	b.Container = "sbx-x" // container_prefix, the 13th key
	at := directories{1000, 1001, "1:2"}
	args, hash := b.createArgs("h", at, time.Unix(1_700_000_000, 0))
	want := "create --pull never --name sbx-x --label theclaw.container=sbx-x --label theclaw.home=h --label theclaw.settings=" + hash +
		" --label theclaw.fence=agent/a1=3 --label theclaw.created=1700000000 --label theclaw.idle=86400 --label theclaw.max_age=604800 " + defaults
	if got := strings.Join(args, " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// The hash names the settings and the directories alone.
	b.Fence = "agent/a1=4"
	if _, same := b.createArgs("h", at, time.Unix(1_800_000_000, 0)); same != hash {
		t.Error("another lease is another hash")
	}
	if _, other := b.createArgs("h", directories{1000, 1001, "1:3"}, time.Unix(1_700_000_000, 0)); other == hash {
		t.Error("other directories have the same hash")
	}
	b.Memory = "1g"
	if _, other := b.createArgs("h", at, time.Unix(1_700_000_000, 0)); other == hash {
		t.Error("other settings have the same hash")
	}
}

// S4-73: the settings of the browser are arguments of docker.
func TestBrowserArguments(t *testing.T) {
	b := Box{DockerSandbox: settings()}
	const head = "create --pull never --name theclaw-sbx-agent-a1-d4f1bd6b-browser --label theclaw.container=theclaw-sbx-agent-a1-d4f1bd6b-browser " +
		"--init --pids-limit 1024 --network bridge --security-opt no-new-privileges "
	for _, c := range []struct {
		of   Browser
		want string
	}{
		{
			Browser{Image: "b:1", CDPPort: 9222, VNCPort: 5900},
			"--publish 127.0.0.1::9222 --env OPENCLAW_BROWSER_CDP_PORT=9222 --publish 127.0.0.1::5900 --env OPENCLAW_BROWSER_VNC_PORT=5900 b:1",
		},
		{
			Browser{Image: "b:2", CDPPort: 1, VNCPort: 2, Headless: true, AllowHostControl: true},
			"--publish 127.0.0.1::1 --env OPENCLAW_BROWSER_CDP_PORT=1 --env OPENCLAW_BROWSER_HEADLESS=1 --env OPENCLAW_BROWSER_ALLOW_HOST_CONTROL=1 b:2",
		},
	} {
		if got := strings.Join(BrowserArgs(b, c.of), " "); got != head+c.want {
			t.Errorf("got %s\nwant %s", got, head+c.want)
		}
	}
}

// S4-75, S4-76: where the directories of a turn are in the container, by the access to the workspace.
func TestBoxOfTurn(t *testing.T) {
	for _, c := range []struct {
		access, scratch string
		shared          bool
		want            string
	}{
		{"rw", "", false, "/w rw  agent/a1=3"},
		{"none", "/w", false, "/w rw  agent/a1=3"},
		{"none", "/w", true, "/w rw  "},
		{"ro", "/s", false, "/w ro /s agent/a1=3"},
	} {
		docker := settings()
		docker.Shared = c.shared
		b := BoxOf(&registrypb.TurnConfig{Workdir: "/w", Sandbox: &registrypb.Sandbox{Access: c.access, Scratch: c.scratch, Docker: docker}}, "agent/a1=3")
		mode := "rw"
		if b.ReadOnly {
			mode = "ro"
		}
		if got := strings.Join([]string{b.Dir, mode, b.Temp, b.Fence}, " "); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
	b := Box{DockerSandbox: settings(), Dir: "/w"}
	for path, want := range map[string]string{"/w/.output/x": "/workspace/.output/x", "/w": "/workspace", "/other": "/other", "": ""} {
		if got := b.Inside(path); got != want {
			t.Errorf("%q is %q inside", path, got)
		}
	}
}

// Binds and working directories that show what programs may not see are refused, by their path or by a link.
func TestBindsRefused(t *testing.T) {
	h := newHost(t)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(h.dir, link))
	free := t.TempDir()
	for source, refused := range map[string]bool{
		"/": true, "/etc": true, "/etc/ssl": true, "/proc": true, "/sys/fs": true, "/run": true, "/run/docker.sock": true, "/free/../etc": true,
		h.dir: true, filepath.Dir(h.dir): true, h.state: true, link: true, link + "/state": true, free: false, "/etcetera": false,
	} {
		b := newBox(t, "")
		b.Binds = []string{source + ":/data:ro"}
		if err := h.driver().check(b); (err != nil) != refused {
			t.Errorf("%s: %v", source, err)
		}
		b.Binds, b.Dir = nil, source
		if err := h.driver().check(b); (err != nil) != refused {
			t.Errorf("working directory %s: %v", source, err)
		}
	}
	b := newBox(t, "")
	b.Dir = "/home/a/.theclaw/agents/a1/workdir"
	must(t, h.driver().check(b)) // each is in a home
	for _, source := range []string{"/home/a/.theclaw/agents", "/home/a"} {
		if b.Binds = []string{source + ":/x"}; !fault.Is(h.driver().check(b), fault.ConfigInvalid) {
			t.Errorf("%s is not refused", source)
		}
	}
}
