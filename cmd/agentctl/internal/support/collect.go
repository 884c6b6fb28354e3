package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/cmd/agentctl/internal/doctor"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/service"
	"github.com/theclaw/agents/cmd/agentctl/internal/up"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/envfile"
	"github.com/theclaw/agents/internal/fault"
	process "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// logTail is how much of the end of a log is taken, in bytes.
	logTail = 1 << 20
	// maxAgents bounds the agents whose logs and settings are taken.
	maxAgents = 50
	// maxFiles bounds the databases that are listed.
	maxFiles = 20_000
	// programTime bounds a program that is run.
	programTime = 20 * time.Second
)

// collect fills the bundle. What cannot be had is named in it, and is no error.
func (b *bundle) collect(ctx context.Context) error {
	agents, _ := os.ReadDir(b.home.AgentsDir()) // there may be none yet
	agents = slices.DeleteFunc(agents, func(e fs.DirEntry) bool { return !e.IsDir() || layout.ValidID(e.Name()) != nil })
	if len(agents) > maxAgents {
		agents = agents[:maxAgents]
	}
	files := map[string][]byte{}
	for _, name := range []string{layout.DefaultsName, layout.JSON5Name, provider.FileName} {
		files[name], _ = os.ReadFile(filepath.Join(b.home.Path(), name))
	}
	for _, a := range agents {
		name := "agents/" + a.Name() + "/config.yaml"
		files[name], _ = os.ReadFile(filepath.Join(b.home.Path(), name))
	}
	var texts [][]byte
	for _, text := range files {
		texts = append(texts, text)
	}
	vars, _ := envfile.Read(b.home.EnvFile()) // what is wrong with it is in doctor.json
	b.clean = newCleaner(b.home, vars.Environ(os.Environ()), b.env.Getenv("HOME"), texts)

	for _, part := range []struct {
		name string
		text func(context.Context) []byte
	}{
		{"versions.txt", b.versions}, {"doctor.json", b.doctor}, {"databases.txt", b.databases}, {"environment.txt", b.variables},
	} {
		if err := errors.Join(ctx.Err(), b.add(part.name, part.text(ctx))); err != nil {
			return err
		}
	}
	for _, name := range []string{layout.DefaultsName, layout.JSON5Name, provider.FileName} {
		if len(files[name]) > 0 {
			if err := b.add("settings/"+name, files[name]); err != nil {
				return err
			}
		}
	}
	for _, a := range agents {
		if err := errors.Join(ctx.Err(), b.add("settings/agents/"+a.Name()+".txt", b.settings(ctx, a.Name(), files["agents/"+a.Name()+"/config.yaml"]))); err != nil {
			return err
		}
		if err := b.log("logs/agents/"+a.Name()+".log", filepath.Join(b.home.AgentDir(a.Name()), "logs", "agent.log")); err != nil {
			return err
		}
	}
	if err := b.log("logs/agentd.log", filepath.Join(b.home.RunDir(), "agentd.log")); err != nil {
		return err
	}
	if service.Installed(b.env) {
		return b.add("logs/service.log", output(ctx, "journalctl", "--user", "--unit", service.Unit, "--no-pager", "--lines", "5000"))
	}
	return nil
}

// versions are those of the programs here, of what serves, and of the machine.
func (b *bundle) versions(ctx context.Context) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "time      %s\nagentctl  %s, %s, %s/%s\n", b.now.UTC().Format(time.RFC3339), b.env.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if path, err := up.Program(); err != nil {
		fmt.Fprintf(&out, "agentd    %s\n", fault.Line(err))
	} else {
		fmt.Fprintf(&out, "agentd    %s: %s", path, output(ctx, path, "--version"))
	}
	for _, name := range []string{command.Registry, command.Runner, command.Deliverer, command.Gateway} {
		p, err := b.env.Process(name).GetProcess(ctx, &process.GetProcessRequest{})
		if err != nil {
			fmt.Fprintf(&out, "%-9s %s\n", name, fault.Line(err))
			continue
		}
		fmt.Fprintf(&out, "%-9s %s, pid %d, serves %s\n", name, p.GetVersion(), p.GetPid(), strings.Join(p.GetServices(), " "))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		fmt.Fprintf(&out, "kernel    %s %s %s\n", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "PRETTY_NAME=") {
				fmt.Fprintf(&out, "system    %s", strings.TrimPrefix(line, "PRETTY_NAME="))
			}
		}
	}
	fmt.Fprintf(&out, "processors %d\n", runtime.NumCPU())
	return out.Bytes()
}

func (b *bundle) doctor(ctx context.Context) []byte {
	text, err := doctor.Report(ctx, b.env)
	if err != nil {
		return []byte(fault.Line(err) + "\n")
	}
	return text
}

// databases are the sizes of the databases and of what belongs to them.
func (b *bundle) databases(context.Context) []byte {
	var out bytes.Buffer
	n := 0
	err := filepath.WalkDir(b.home.Path(), func(path string, e fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(b.home.Path(), path)
		switch {
		case err != nil || relErr != nil:
			fmt.Fprintf(&out, "%s\n", boundary.Name(fmt.Sprint(errors.Join(err, relErr))))
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir() && e.Name() == "workdir":
			return fs.SkipDir
		case !e.Type().IsRegular() || !strings.HasSuffix(rel, ".db") && !strings.HasSuffix(rel, ".db-wal"):
			return nil
		}
		if n++; n > maxFiles {
			return fs.SkipAll
		}
		if info, err := e.Info(); err == nil {
			fmt.Fprintf(&out, "%12d  %s\n", info.Size(), boundary.Name(rel))
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(&out, "%v\n", err)
	}
	var s unix.Statfs_t
	if unix.Statfs(b.home.Path(), &s) == nil {
		fmt.Fprintf(&out, "%12d  free on this disk\n", s.Bavail*uint64(s.Bsize))
	}
	return out.Bytes()
}

// variables are the names of those that change what the programs do, with values where
// the name cannot be that of a secret.
func (b *bundle) variables(context.Context) []byte {
	var out []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		known := strings.HasPrefix(name, "THECLAW_") || strings.HasPrefix(name, "OTEL_") || strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "XDG_") ||
			slices.Contains([]string{"PATH", "TERM", "LANG", "LC_ALL", "NO_COLOR", "TMPDIR"}, name)
		switch {
		case secretName.MatchString(name):
			out = append(out, name+"="+removed)
		case known, strings.HasSuffix(name, "_BASE_URL"), strings.HasSuffix(name, "_MODEL"), strings.HasSuffix(strings.ToLower(name), "_proxy"):
			out = append(out, name+"="+value)
		}
	}
	slices.Sort(out)
	return []byte(strings.Join(out, "\n") + "\n")
}

// settings are those in force, as the registry has them; without it the agent's file.
func (b *bundle) settings(ctx context.Context, agent string, file []byte) []byte {
	r, err := b.env.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: agent})
	if err != nil {
		return append([]byte("# "+strings.TrimPrefix(fault.Line(err), "Error: ")+"\n# config.yaml:\n"), file...)
	}
	var out bytes.Buffer
	for _, v := range r.GetValues() {
		key := v.GetKey()
		text := strings.TrimSpace(v.GetValue())
		if secretName.MatchString(key[strings.LastIndex(key, ".")+1:]) && !number.MatchString(text) && text != "" {
			text = removed
		}
		fmt.Fprintf(&out, "%s: %s  # %s\n", key, strings.ReplaceAll(text, "\n", "\n  "), v.GetOrigin())
	}
	return out.Bytes()
}

// log adds the end of a log; one that is not there is left out.
func (b *bundle) log(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	from := max(info.Size()-logTail, 0)
	text, err := io.ReadAll(io.NewSectionReader(f, from, logTail))
	if err != nil {
		return b.add(name, []byte(err.Error()+"\n"))
	}
	if from > 0 { // the first line is not complete: half a secret would not be known
		if _, rest, ok := bytes.Cut(text, []byte("\n")); ok {
			text = rest
		}
	}
	return b.add(name, text)
}

// output is what a program prints.
func output(ctx context.Context, program string, args ...string) []byte {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		text = append(text, []byte(err.Error()+"\n")...)
	}
	return text
}
