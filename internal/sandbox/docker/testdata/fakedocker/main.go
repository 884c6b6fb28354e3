// Command fakedocker stands in for docker in tests. A container is a directory of files next to this program; its
// commands are processes of this machine, which start in the directory that is mounted at their working directory.
//
// It refuses what docker refuses: an unknown flag, container, image or mount, a name that is in use, a command in a
// container that does not run. As with docker, the end of a client does not end its command: that runs below a process
// of its own and reads the end of its input. The removal of a container ends all that was started in it.
//
// The files in state/: down (the daemon does not answer), images (a line for each), names/NAME, and ID/ with
// config.json, running and execs/PID. Each call adds its arguments as a line of JSON to calls.
package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

type container struct {
	ID, Name, Image, Workdir string
	Labels                   map[string]string
	Env                      []string
	Mounts                   [][2]string // source, target
}

func (c container) State() string {
	if _, err := os.Stat(at(c.ID, "running")); err == nil {
		return "running"
	}
	return "created"
}
func (c container) Label(name string) string { return c.Labels[name] }
func (c container) ExecIDs() []string {
	entries, _ := os.ReadDir(at(c.ID, "execs"))
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

var state string

func at(parts ...string) string { return filepath.Join(append([]string{state}, parts...)...) }

func fail(code int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(code)
}

func main() {
	self, err := os.Executable()
	if err != nil {
		fail(125, "%v", err)
	}
	state = filepath.Join(filepath.Dir(self), "state")
	args := os.Args[1:]
	if len(args) > 1 && args[0] == "shim" {
		shim(args[1:])
		return
	}
	if f, err := os.OpenFile(at("calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		line, _ := json.Marshal(args)
		_, _ = f.Write(append(line, '\n'))
		_ = f.Close()
	}
	if _, err := os.Stat(at("down")); err == nil {
		fail(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	verb, rest := args[0], args[1:]
	if verb == "container" || verb == "image" {
		verb, rest = verb+" "+rest[0], rest[1:]
	}
	run, ok := verbs[verb]
	if !ok {
		fail(125, "docker: '%s' is not a docker command.", verb)
	}
	flags, words := parse(run.flags, rest)
	run.do(flags, words)
}

type command struct {
	flags string // with = behind those that have a value
	do    func(flags map[string][]string, words []string)
}

var verbs map[string]command

func init() {
	verbs = map[string]command{
		"version":           {"format=", func(map[string][]string, []string) { fmt.Println("28.2.2") }},
		"image inspect":     {"format=", imageInspect},
		"ps":                {"all no-trunc filter= format=", ps},
		"container inspect": {"format=", inspect},
		"create": {"pull= name= label= init pids-limit= read-only tmpfs= network= user= cap-drop= security-opt= memory= cpus= env= mount= " +
			"workdir= entrypoint= publish=", create},
		"start": {"", start},
		"exec":  {"interactive workdir= env=", execute},
		"rm":    {"force volumes", remove},
	}
}

// parse reads flags up to the first word.
func parse(known string, args []string) (flags map[string][]string, words []string) {
	flags = map[string][]string{}
	for i := 0; i < len(args); i++ {
		name, is := strings.CutPrefix(args[i], "--")
		switch {
		case !is && strings.HasPrefix(args[i], "-"):
			fail(125, "unknown shorthand flag: '%s' in %s", args[i][1:], args[i])
		case !is:
			return flags, args[i:]
		case slices.Contains(strings.Fields(known), name):
			flags[name] = []string{"true"}
		case slices.Contains(strings.Fields(known), name+"=") && i+1 < len(args):
			i++
			flags[name] = append(flags[name], args[i])
		default:
			fail(125, "unknown flag: --%s\n\nUsage:  docker [OPTIONS] COMMAND\n\nRun 'docker --help' for more information", name)
		}
	}
	return flags, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func needImage(name string) {
	b, _ := os.ReadFile(at("images"))
	if !slices.Contains(strings.Fields(string(b)), name) {
		fail(1, "Error response from daemon: No such image: %s", name)
	}
}

func imageInspect(_ map[string][]string, words []string) {
	needImage(words[0])
	fmt.Println("sha256:1")
}

func load(id string) (c container, err error) {
	b, err := os.ReadFile(at(id, "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

func find(name string) container {
	id := name
	if b, err := os.ReadFile(at("names", name)); err == nil {
		id = string(b)
	}
	c, err := load(id)
	if err != nil || id == "" {
		fail(1, "Error response from daemon: No such container: %s", name)
	}
	return c
}

func show(format string, of any) {
	t, err := template.New("").Parse(format)
	if err == nil {
		err = t.Execute(os.Stdout, of)
	}
	if err != nil {
		fail(64, "template parsing error: %v", err)
	}
	fmt.Println()
}

func ps(flags map[string][]string, _ []string) {
	entries, _ := os.ReadDir(state)
	for _, e := range entries {
		c, err := load(e.Name())
		if err != nil {
			continue
		}
		wanted := true
		for _, f := range flags["filter"] {
			label, ok := strings.CutPrefix(f, "label=")
			if !ok {
				fail(1, "Error response from daemon: invalid filter '%s'", f)
			}
			name, value, _ := strings.Cut(label, "=")
			wanted = wanted && c.Labels[name] == value
		}
		if wanted {
			show(first(flags["format"]), c)
		}
	}
}

func inspect(flags map[string][]string, words []string) { show(first(flags["format"]), find(words[0])) }

func create(flags map[string][]string, words []string) {
	if len(words) == 0 {
		fail(125, `docker: "docker create" requires at least 1 argument.`)
	}
	needImage(words[0])
	c := container{ID: strings.ToLower(rand.Text()), Name: first(flags["name"]), Image: words[0], Workdir: first(flags["workdir"]), Labels: map[string]string{}, Env: flags["env"]}
	for _, l := range flags["label"] {
		name, value, _ := strings.Cut(l, "=")
		c.Labels[name] = value
	}
	for _, m := range flags["mount"] {
		var source, target string
		for f := range strings.SplitSeq(m, ",") {
			switch key, value, _ := strings.Cut(f, "="); key {
			case "source":
				source = value
			case "target":
				target = value
			}
		}
		if _, err := os.Stat(source); err != nil {
			fail(1, "Error response from daemon: invalid mount config for type \"bind\": bind source path does not exist: %s", source)
		}
		c.Mounts = append(c.Mounts, [2]string{source, target})
	}
	if err := os.MkdirAll(at("names"), 0o700); err != nil {
		fail(1, "%v", err)
	}
	f, err := os.OpenFile(at("names", c.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		fail(1, "Error response from daemon: Conflict. The container name \"/%s\" is already in use by container. You have to remove (or rename) that container to be able to reuse that name.", c.Name)
	}
	if err := os.MkdirAll(at(c.ID, "execs"), 0o700); err != nil {
		fail(1, "%v", err)
	}
	b, _ := json.Marshal(c)
	_, err = f.WriteString(c.ID)
	if err = errors.Join(err, f.Close(), os.WriteFile(at(c.ID, "new"), b, 0o600), os.Rename(at(c.ID, "new"), at(c.ID, "config.json"))); err != nil {
		fail(1, "%v", err)
	}
	fmt.Println(c.ID)
}

func start(_ map[string][]string, words []string) {
	c := find(words[0])
	if err := os.WriteFile(at(c.ID, "running"), nil, 0o600); err != nil {
		fail(1, "Error response from daemon: No such container: %s\nError: failed to start containers: %s", words[0], words[0])
	}
	fmt.Println(words[0])
}

func remove(flags map[string][]string, words []string) {
	c := find(words[0])
	if c.State() == "running" && flags["force"] == nil {
		fail(1, "Error response from daemon: cannot remove container \"/%s\": container is running: stop the container before removing or force remove", c.Name)
	}
	_ = os.Remove(at(c.ID, "running")) // nothing more starts
	for len(c.ExecIDs()) > 0 {
		for _, id := range c.ExecIDs() {
			pid, _ := strconv.Atoi(id)
			below := descendants(pid)
			for _, p := range below {
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
			if len(below) == 0 && syscall.Kill(pid, 0) != nil {
				_ = os.Remove(at(c.ID, "execs", id)) // it was killed
			}
		}
	}
	_ = os.Remove(at("names", c.Name))
	if err := os.RemoveAll(at(c.ID)); err != nil {
		fail(1, "%v", err)
	}
	fmt.Println(words[0])
}

// descendants are the processes below one.
func descendants(of int) (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(of) {
			all = append(append(all, pid), descendants(pid)...)
		}
	}
	return all
}

// inside translates a path of a container into one of the host.
func (c container) inside(path string) (string, bool) {
	for _, m := range c.Mounts {
		if rel, err := filepath.Rel(m[1], path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(m[0], rel), true
		}
	}
	return "", false
}

// execute is the client of a command: it passes input and output on, and returns the exit code.
func execute(flags map[string][]string, words []string) {
	c := find(words[0])
	if c.State() != "running" {
		fail(1, "Error response from daemon: container %s is not running", c.ID)
	}
	dir, ok := c.inside(first(flags["workdir"]))
	if !ok {
		fail(126, "OCI runtime exec failed: exec failed: unable to start container process: chdir to cwd (%q) set in config.json failed: no such file or directory", first(flags["workdir"]))
	}
	env := append([]string{"PATH=" + os.Getenv("PATH")}, c.Env...)
	for _, kv := range flags["env"] {
		name, value, _ := strings.Cut(kv, "=")
		if host, ok := c.inside(value); ok {
			value = host
		}
		env = append(env, name+"="+value)
	}
	var ours, theirs []*os.File
	for i := range 4 { // input, output, errors, exit code
		r, w, err := os.Pipe()
		if err != nil {
			fail(1, "%v", err)
		}
		if i == 0 {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	self, _ := os.Executable()
	cmd := exec.Command(self, append([]string{"shim", c.ID}, words[1:]...)...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = dir, env, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fail(1, "%v", err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if flags["interactive"] == nil {
		_ = ours[0].Close()
	} else {
		go func() {
			_, _ = io.Copy(ours[0], os.Stdin)
			_ = ours[0].Close()
		}()
	}
	done := make(chan struct{}, 2)
	for i, to := range []io.Writer{os.Stdout, os.Stderr} {
		go func() {
			_, _ = io.Copy(to, ours[i+1])
			done <- struct{}{}
		}()
	}
	code, _ := io.ReadAll(ours[3])
	if len(code) == 0 { // it was killed with the container
		os.Exit(137)
	}
	<-done
	<-done
	n, _ := strconv.Atoi(string(code))
	os.Exit(n)
}

// shim is the process above a command, which outlives the client. What the command leaves is below it.
func shim(args []string) {
	id, argv := args[0], args[1:]
	var files []*os.File
	for i := range 4 {
		syscall.CloseOnExec(3 + i)
		files = append(files, os.NewFile(uintptr(3+i), "pipe"))
	}
	signal.Ignore(syscall.SIGPIPE)
	const setChildSubreaper = 36
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
	own := at(id, "execs", strconv.Itoa(os.Getpid()))
	path, err := exec.LookPath(argv[0])
	if err == nil {
		err = os.WriteFile(own, nil, 0o600)
	}
	var p *os.Process
	var pumped []func()
	if err == nil {
		dir, _ := os.Getwd()
		stdout, one := pump(files[1])
		stderr, two := pump(files[2])
		pumped = []func(){one, two}
		p, err = os.StartProcess(path, argv, &os.ProcAttr{Dir: dir, Env: os.Environ(), Files: []*os.File{files[0], stdout, stderr}, Sys: &syscall.SysProcAttr{Setsid: true}})
		_ = errors.Join(stdout.Close(), stderr.Close(), files[0].Close())
	}
	if err != nil {
		_, _ = fmt.Fprintf(files[2], "OCI runtime exec failed: exec failed: unable to start container process: %v\n", err)
		_, _ = files[3].WriteString("127")
		_ = os.Remove(own)
		return
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // nothing is left
			break
		}
		if pid == p.Pid {
			code := ws.ExitStatus()
			if ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			for _, wait := range pumped {
				wait()
			}
			_, _ = files[3].WriteString(strconv.Itoa(code))
			for _, f := range files[1:] {
				_ = f.Close()
			}
		}
	}
	_ = os.Remove(own)
}

// pump returns where a command writes to, and a function that waits until what it has written is passed on, and a
// moment for what it has left. Without a client what it writes is dropped.
func pump(to *os.File) (w *os.File, wait func()) {
	r, w, err := os.Pipe()
	if err != nil {
		fail(1, "%v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 32<<10)
		for {
			n, err := r.Read(b)
			_, _ = to.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	return w, func() {
		_ = r.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		<-done
	}
}
