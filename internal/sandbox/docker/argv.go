package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxPIDs is how many processes and threads a container may have.
const maxPIDs = 1024

// The labels of a container.
const (
	labelName     = "theclaw.container"
	labelHome     = "theclaw.home"     // hash of the home that has made it
	labelSettings = "theclaw.settings" // hash of what it was made with, and of the directories that it shows
	labelFence    = "theclaw.fence"    // resource=token of the lease; empty: several agents use it
	labelCreated  = "theclaw.created"  // seconds since 1970
	labelIdle     = "theclaw.idle"     // seconds without a command after which it is removed
	labelMaxAge   = "theclaw.max_age"  // seconds after which it is removed
)

// Box is a container, as the settings of a turn want it.
type Box struct {
	*registrypb.DockerSandbox
	// Dir is the directory of the host that programs see as the working directory, and cannot change with ReadOnly.
	Dir      string
	ReadOnly bool
	// Temp is a directory of the host for temporary files; empty: programs have /tmp.
	Temp string
	// Fence is resource=token of the lease.
	Fence string
}

// BoxOf is the container of a turn with these settings, which name one.
func BoxOf(c *registrypb.TurnConfig, fence string) Box {
	b := Box{DockerSandbox: c.GetSandbox().GetDocker(), Dir: c.GetWorkdir(), Fence: fence}
	if c.GetSandbox().GetAccess() == "ro" {
		b.ReadOnly, b.Temp = true, c.GetSandbox().GetScratch()
	}
	if b.GetShared() {
		b.Fence = ""
	}
	return b
}

// Inside is the path in the container of what is at a path of the host below the working directory; any other
// path stays.
func (b Box) Inside(path string) string {
	if rel, err := filepath.Rel(b.Dir, path); err == nil && filepath.IsLocal(rel) {
		return filepath.Join(b.GetWorkdir(), rel)
	}
	return path
}

// temp is where programs see Temp.
func (b Box) temp() string { return b.GetWorkdir() + "-scratch" }

// settings are the arguments of `docker create` that follow from the settings. uid and gid are the owner of Dir.
func (b Box) settings(uid, gid int) []string {
	args := []string{"--init", "--pids-limit", strconv.Itoa(maxPIDs)}
	add := func(flag string, values ...string) {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	if b.GetReadOnlyRoot() {
		args = append(args, "--read-only")
	}
	add("--tmpfs", "/tmp", "/var/tmp", "/run")
	add("--network", b.GetNetwork())
	user := b.GetUser()
	if user == "" { // with all capabilities dropped no other user can write there, root included
		user = strconv.Itoa(uid) + ":" + strconv.Itoa(gid)
	}
	add("--user", user)
	add("--cap-drop", b.GetCapDrop()...)
	add("--security-opt", "no-new-privileges")
	if p := b.GetSeccompProfile(); p != "" {
		add("--security-opt", "seccomp="+p)
	}
	if p := b.GetApparmorProfile(); p != "" {
		add("--security-opt", "apparmor="+p)
	}
	if m := b.GetMemory(); m != "" {
		add("--memory", m)
	}
	if n := b.GetCpus(); n != "" {
		add("--cpus", n)
	}
	for _, name := range slices.Sorted(maps.Keys(b.GetEnv())) {
		add("--env", name+"="+b.GetEnv()[name])
	}
	add("--mount", mount(b.Dir, b.GetWorkdir(), b.ReadOnly))
	if b.Temp != "" {
		add("--mount", mount(b.Temp, b.temp(), false))
	}
	for _, bind := range b.GetBinds() { // as mounts: docker makes the source of a --volume that is not there
		source, rest, _ := strings.Cut(bind, ":")
		target, mode, _ := strings.Cut(rest, ":")
		add("--mount", mount(source, target, mode == "ro"))
	}
	add("--workdir", b.GetWorkdir())
	return append(args, "--entrypoint", "sleep", b.GetImage(), "infinity")
}

// mount is the value of --mount, which is a line of CSV.
func mount(source, target string, readOnly bool) string {
	out := "type=bind," + field("source="+source) + "," + field("target="+target)
	if readOnly {
		out += ",readonly"
	}
	return out
}

func field(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

// createArgs are the arguments that make the container, and the hash of its settings and of which directories it
// shows.
func (b Box) createArgs(home string, at directories, now time.Time) (args []string, hash string) {
	settings := b.settings(at.uid, at.gid)
	hash = hashOf(append(slices.Clip(settings), at.which)...)
	args = []string{"create", "--pull", "never", "--name", b.GetContainer()}
	for _, l := range [][2]string{
		{labelName, b.GetContainer()},
		{labelHome, home},
		{labelSettings, hash},
		{labelFence, b.Fence},
		{labelCreated, strconv.FormatInt(now.Unix(), 10)},
		{labelIdle, seconds(b.GetPruneIdle().AsDuration())},
		{labelMaxAge, seconds(b.GetPruneMaxAge().AsDuration())},
	} {
		args = append(args, "--label", l[0]+"="+l[1])
	}
	return append(args, settings...), hash
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// hashOf names a list of texts. Each is counted, so that no two lists look the same.
func hashOf(list ...string) string {
	h := sha256.New()
	for _, s := range list {
		h.Write([]byte(strconv.Itoa(len(s)) + ":" + s))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// script starts a program in a process group of its own and ends the group when its standard input closes. Its
// first argument is a mark: a line of it on stderr says that the program may run from now on, and a line with the exit
// code that the group has ended. It needs sh and setsid of the image; dash has neither `set -m` without a terminal nor
// `kill --`. The second kill reaches what the program has started between its fork and its own group.
const script = `m=$1; shift
command -v setsid >/dev/null || { echo 'the image has no program setsid' >&2; exit 127; }
exec 3<&0 </dev/null
printf '\001%s\n' "$m" >&2
setsid "$@" 3<&- &
p=$!
( while read -r x; do :; done <&3; kill -9 -"$p" "$p"; kill -9 -"$p" ) >/dev/null 2>&1 &
w=$!
exec 3<&-
wait "$p" 2>/dev/null; c=$?
kill -9 "$w" -"$p" 2>/dev/null
printf '\001%s %d\n' "$m" "$c" >&2
exit "$c"`

// shell runs a line by bash, or by sh where the image has no bash.
const shell = `if command -v bash >/dev/null; then exec bash -c "$1"; fi; exec sh -c "$1"`

// execArgs are the arguments that run a program in a container.
func (b Box) execArgs(id, mark string, env map[string]string, argv []string) []string {
	all := map[string]string{"HOME": b.GetWorkdir(), "TERM": "dumb"}
	if b.Temp != "" {
		all["TMPDIR"] = b.temp()
	}
	maps.Copy(all, env)
	args := []string{"exec", "--interactive", "--workdir", b.GetWorkdir()}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "--env", name+"="+all[name])
	}
	return append(append(args, id, "/bin/sh", "-c", script, "sh", mark), argv...)
}
