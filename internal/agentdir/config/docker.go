package config

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// The values of sandbox.driver.
const (
	driverAuto   = "auto"
	driverDocker = "docker"
)

// networkNone is no network, networkBridge the usual one of docker.
const (
	networkNone   = "none"
	networkBridge = "bridge"
)

// Docker is the container in which programs run with the driver docker. An empty User is the owner of the working
// directory; an empty Memory, CPUs, SeccompProfile and ApparmorProfile is what docker has.
type Docker struct {
	Image, ContainerPrefix, Workdir string
	ReadOnlyRoot                    bool
	Network, User                   string
	CapDrop                         []string
	Env                             Variables
	Memory, CPUs                    Amount
	SeccompProfile, ApparmorProfile string
	Binds                           []string
	Prune                           Prune
}

// Prune says when a container is removed.
type Prune struct{ Idle, MaxAge time.Duration }

// Browser is the container of a browser for the sandbox, which is not started yet.
type Browser struct {
	Enabled                    bool
	Image                      string
	CDPPort, VNCPort           int
	Headless, AllowHostControl bool
}

// Amount is a number, which may have a unit.
type Amount string

// Variables are variables of the environment by their names.
type Variables map[string]string

func defaultDocker() Docker {
	return Docker{
		Image: "openclaw-sandbox:bookworm-slim", ContainerPrefix: "theclaw-sbx-", Workdir: "/workspace", ReadOnlyRoot: true, Network: networkNone,
		CapDrop: []string{"ALL"}, Env: Variables{"LANG": "C.UTF-8"}, Prune: Prune{Idle: 24 * time.Hour, MaxAge: 7 * 24 * time.Hour},
	}
}

func defaultBrowser() Browser {
	return Browser{Image: "openclaw-sandbox-browser:bookworm-slim", CDPPort: 9222, VNCPort: 5900}
}

// container is what a runner needs to make the container of a conversation.
func (c *Config) container(at SandboxAt) *registryv1.DockerSandbox {
	d := c.Sandbox.Docker
	network := d.Network
	if network == networkNone && c.Sandbox.Network.Open {
		network = networkBridge
	}
	return &registryv1.DockerSandbox{
		Container: at.Container, Shared: at.Shared, Scope: at.Scope, Image: d.Image, Workdir: d.Workdir, ReadOnlyRoot: d.ReadOnlyRoot, Network: network, User: d.User,
		CapDrop: d.CapDrop, Env: d.Env, Memory: string(d.Memory), Cpus: string(d.CPUs), SeccompProfile: d.SeccompProfile, ApparmorProfile: d.ApparmorProfile,
		Binds: d.Binds, PruneIdle: durationpb.New(d.Prune.Idle), PruneMaxAge: durationpb.New(d.Prune.MaxAge),
	}
}

// String writes the variables on one line of YAML.
func (v Variables) String() string {
	parts := make([]string, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		parts = append(parts, Quote(name)+": "+Quote(v[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// parseVariables reads NAME: VALUE or NAME=VALUE with commas between, also in braces. See [ParseNumber].
func parseVariables(s string, to *Variables) string {
	*to = Variables{}
	if in, ok := strings.CutPrefix(strings.TrimSpace(s), "{"); ok {
		s = strings.TrimSuffix(in, "}")
	}
	for _, part := range parseList(s) {
		i := strings.IndexAny(part, ":=")
		if i < 0 {
			return "must be a mapping such as {LANG: C.UTF-8}"
		}
		(*to)[strings.Trim(strings.TrimSpace(part[:i]), `'"`)] = strings.Trim(strings.TrimSpace(part[i+1:]), `'"`)
	}
	return ""
}

// NoBinds are the paths that no bind may show, hold or be in. A home is another one.
var NoBinds = []string{"/etc", "/proc", "/sys", "/run/docker.sock", "/var/run/docker.sock"}

// BindSource is the path on the host of a bind.
func BindSource(bind string) string {
	source, _, _ := strings.Cut(bind, ":")
	return source
}

var (
	imageRule   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,254}$`) })
	prefixRule  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`) })
	networkRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`) })
	userRule    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$`)
	})
	memoryRule   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,15}[bkmgBKMG]?$`) })
	cpusRule     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,3})?$`) })
	profileRule  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,127}$`) })
	capRule      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z_]{0,39}$`) })
	variableRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`) })
)

// matching is the rule of a text that has a form.
func matching(rule func() *regexp.Regexp, words string) Rule {
	return form(func(v any) string {
		if s := *v.(*string); !rule().MatchString(s) {
			return fmt.Sprintf("%q is not %s", Clip(s), words)
		}
		return ""
	}, words)
}

// orNone is the rule of a text or an amount that has a form or is empty.
func orNone(rule func() *regexp.Regexp, words string) Rule {
	return form(func(v any) string {
		var s string
		switch ref := v.(type) {
		case *string:
			s = *ref
		case *Amount:
			s = string(*ref)
		}
		if s != "" && (!rule().MatchString(s) || s == "unconfined") {
			return fmt.Sprintf("%q is not %s", Clip(s), words)
		}
		return ""
	}, words)
}

func image(v any) string {
	if s := *v.(*string); !imageRule().MatchString(s) {
		return fmt.Sprintf("%q is not the name of an image such as debian:bookworm-slim", Clip(s))
	}
	return ""
}

// containerDir is a directory in a container that hides nothing that programs need.
func containerDir(v any) string {
	s := *v.(*string)
	if line(v) != "" || !path.IsAbs(s) || path.Clean(s) != s || s == "/" || strings.ContainsAny(s, ":,") {
		return fmt.Sprintf("%q is not an absolute directory such as /workspace, without : and ,", Clip(s))
	}
	return ""
}

func capabilities() Rule {
	return Rule{Form: "names such as ALL or NET_RAW, at most 50", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 50 {
			return fmt.Sprintf("%d capabilities, and 50 are the most", len(list))
		}
		for _, s := range list {
			if !capRule().MatchString(s) {
				return fmt.Sprintf("%q is not a capability such as ALL or NET_RAW", Clip(s))
			}
		}
		return ""
	}}
}

func variables() Rule {
	return Rule{Form: "at most 100 of NAME: VALUE, values of one line", check: func(v any) string {
		all := *v.(*Variables)
		if len(all) > 100 {
			return fmt.Sprintf("%d variables, and 100 are the most", len(all))
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			value := all[name]
			switch {
			case !variableRule().MatchString(name):
				return fmt.Sprintf("%q is not the name of a variable", Clip(name))
			case value != "" && line(&value) != "":
				return name + " " + line(&value)
			}
		}
		return ""
	}}
}

func binds() Rule {
	return Rule{Form: "at most 50 of SOURCE:TARGET or SOURCE:TARGET:ro, absolute paths", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 50 {
			return fmt.Sprintf("%d binds, and 50 are the most", len(list))
		}
		for _, s := range list {
			parts := strings.Split(s, ":")
			if line(&s) != "" || len(parts) < 2 || len(parts) > 3 || !path.IsAbs(parts[0]) || !path.IsAbs(parts[1]) || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
				return fmt.Sprintf("%q is not SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths", Clip(s))
			}
			for _, refused := range NoBinds {
				if source := path.Clean(parts[0]); below(source, refused) || below(refused, source) {
					return fmt.Sprintf("%q would show %s to programs; remove it", Clip(s), refused)
				}
			}
		}
		return ""
	}}
}

// below reports whether a clean path is a directory or in it.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
