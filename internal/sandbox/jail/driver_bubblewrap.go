package jail

import (
	"os"
	"strconv"

	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// insideSelf is where bubblewrap shows our own binary; the sandbox's init is ours
// there too, because bubblewrap knows neither Landlock nor rlimits.
const insideSelf = "/.sandbox"

// bwrapArgs builds the same picture as root.go, in bubblewrap's words.
func bwrapArgs(o wire.Order) []string {
	id := strconv.Itoa(wire.ID)
	a := []string{
		"--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--clearenv", "--die-with-parent",
		"--as-pid-1", "--new-session", "--uid", id, "--gid", id, "--hostname", "sandbox",
		"--size", strconv.FormatInt(o.Limits.FileBytes, 10), "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev",
	}
	if o.Network {
		a = append(a, "--share-net")
	}
	for _, p := range isolation.VisiblePaths(o) {
		st, err := os.Lstat(p)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(p); err == nil {
				a = append(a, "--symlink", to, p)
			}
		case p == o.Workspace && o.WorkspaceAt != "":
			a = append(a, "--ro-bind", p, o.WorkspaceAt)
		default:
			a = append(a, "--ro-bind", p, p)
		}
	}
	if o.Network {
		for _, p := range isolation.NetworkFiles {
			a = append(a, "--ro-bind-try", p, p)
		}
	}
	for _, e := range Env() {
		for i := range e {
			if e[i] == '=' {
				a = append(a, "--setenv", e[:i], e[i+1:])
				break
			}
		}
	}
	a = append(a, "--bind", o.Workdir, o.Workdir, "--ro-bind", o.Self, insideSelf,
		"--remount-ro", "/", "--chdir", o.Workdir, "--", insideSelf, marker, roleInner)
	return a
}
