// Package service implements the command `agentctl service`: agentd as a service of the
// user, run by systemd (`systemctl --user`), without the rights of root.
//
// It promises that the unit file is complete or not there, that installing twice changes
// nothing, that a unit for another home is not replaced, and that uninstalling keeps the
// home. It does not start services on other machines, and does not run at boot before the
// user logs in; `loginctl enable-linger` does, and help says so. The service of a machine is
// in deploy/systemd.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/agentctl/internal/up"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// Unit is the name of the service.
	Unit = "theclaw.service"
	// deadline bounds one call of systemctl: a stop waits for the grace of agentd.
	deadline = 90 * time.Second
	// ready is how long the services may take to serve after a start.
	ready = 60 * time.Second
)

// Command answers the command service.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "service",
		Short: "Run the services in the background, with systemd",
		Long: `Run agentd as a service of your user, with systemd ('systemctl --user'). It does not
need root privileges. The service starts when you log in; after 'loginctl enable-linger' also
when the machine starts. For a system-wide service with a user of its own, see
deploy/systemd.`,
		Example: `  agentctl service install
  agentctl service start
  agentctl service status`,
	}, installCommand(e), startCommand(e), stopCommand(e), statusCommand(e), logsCommand(e), uninstallCommand(e))
}

func installCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Install the service for this home, without starting it",
		Long: `Write the unit ~/.config/systemd/user/theclaw.service for this home and this agentd, and
let it start when you log in. Environment variables, such as the keys of model providers,
are read from ~/.config/theclaw/environment, one NAME=value per line; the variables of this
shell are not. Installing again changes nothing unless agentd has moved.`,
		Example: `  agentctl service install
  agentctl service install --home /srv/claw`,
		RunE: func(c *cobra.Command, _ []string) error {
			changed, path, err := Install(c.Context(), e)
			if err != nil {
				return err
			}
			text := path + " is installed already"
			if changed {
				text = "installed " + path
			}
			err = e.Show(struct {
				Unit    string `json:"unit"`
				Changed bool   `json:"changed"`
			}{path, changed}, path, "%s", text)
			if err == nil && !e.Data() {
				e.Note("start it with 'agentctl service start'; 'loginctl enable-linger' lets it run while you are not logged in")
			}
			return err
		},
	}
}

// Install writes the unit and enables it. changed is false when it was there.
func Install(ctx context.Context, e *command.Env) (changed bool, path string, err error) {
	home, err := e.Home()
	if err != nil {
		return false, "", err
	}
	program, err := up.Program()
	if err != nil {
		return false, "", err
	}
	if program, err = filepath.Abs(program); err != nil {
		return false, "", fmt.Errorf("resolve agentd: %w", err)
	}
	if strings.ContainsAny(program+home.Path(), "'\"\\\n\r\t") {
		return false, "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, "systemd takes no path with quotes, backslashes or control characters", "move agentd, or the home")
	}
	if path, err = unitFile(e); err != nil {
		return false, "", err
	}
	if _, err := find(e, "systemctl"); err != nil { // before anything is written
		return false, "", err
	}
	line, err := profileLine(e)
	if err != nil {
		return false, "", err
	}
	text := unit(program, line)
	switch old, err := os.ReadFile(path); {
	case err == nil && string(old) == text:
	case err == nil && !ofHome(e, home.Path(), string(old)):
		return false, path, fault.New(codes.AlreadyExists, fault.InvalidArgument, path+" is the service of another home",
			"remove it with 'agentctl service uninstall', then install this one")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, path, fileFault(err)
	default:
		changed = true
		if _, err := systemctl(ctx, e, "show", "--property=Version"); err != nil { // nothing is written for a manager that is away
			return false, path, err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), renameio.WriteFile(path, []byte(text), 0o644, renameio.WithStaticPermissions(0o644))); err != nil {
			return false, path, fileFault(err)
		}
	}
	// Also when the file was there: an interrupted installation is completed.
	if _, err := systemctl(ctx, e, "daemon-reload"); err != nil {
		return changed, path, err
	}
	_, err = systemctl(ctx, e, "enable", Unit)
	return changed, path, err
}

// Installed reports whether the unit of this home is there.
func Installed(e *command.Env) bool {
	home, err := e.Home()
	if err != nil {
		return false
	}
	path, err := unitFile(e)
	if err != nil {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && ofHome(e, home.Path(), string(old))
}

// Active reports whether the service of this home runs.
func Active(ctx context.Context, e *command.Env) bool {
	if !Installed(e) {
		return false
	}
	s, err := look(ctx, e)
	return err == nil && s.Active == "active"
}

// Possible reports whether this user has a systemd that answers.
func Possible(ctx context.Context, e *command.Env) bool {
	_, err := systemctl(ctx, e, "show", "--property=Version")
	return err == nil
}

func unitFile(e *command.Env) (string, error) {
	dir := e.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := e.Getenv("HOME")
		if home == "" {
			return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, "there is no directory for the unit: HOME is not set", "set HOME, or XDG_CONFIG_HOME")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "systemd", "user", Unit), nil
}

func homeLine(home string) string { return "Environment=" + quote("THECLAW_HOME="+home) }

// profileLine names the profile, too: it has a default port of its own.
func profileLine(e *command.Env) (string, error) {
	variables, err := e.HomeVariables()
	for i, v := range variables {
		variables[i] = quote(v)
	}
	return "Environment=" + strings.Join(variables, " "), err
}

// ofHome reports whether a unit is of the home; earlier builds wrote no profile into it.
func ofHome(e *command.Env, home, text string) bool {
	line, err := profileLine(e)
	return err == nil && (strings.Contains(text, "\n"+line+"\n") || strings.Contains(text, "\n"+homeLine(home)+"\n"))
}

// unit is the text of the unit file.
func unit(program, environment string) string {
	return `# Written by 'agentctl service install'; 'agentctl service uninstall' removes it.
[Unit]
Description=TheClaw agents: registry, runner, deliverer and gateway
# A broken configuration must not spin, but a machine that was down must come back
# without a person: at most 10 starts in 5 minutes.
StartLimitIntervalSec=5min
StartLimitBurst=10

[Service]
Type=exec
ExecStart=` + quote(program) + ` all
` + environment + `
# Keys of model providers that providers.yaml names as env:NAME, one NAME=value a line.
EnvironmentFile=-%E/theclaw/environment
UMask=0077
# SIGTERM drains. What is killed after that resumes from its journal.
KillMode=mixed
TimeoutStopSec=45s
Restart=on-failure
RestartSec=2s
# Each sandboxed program gets its own memory and process limits.
Delegate=memory pids
OOMPolicy=continue
NoNewPrivileges=yes

[Install]
WantedBy=default.target
`
}

// quote is a word of a unit file, without its specifiers.
func quote(word string) string {
	return `"` + strings.ReplaceAll(word, "%", "%%") + `"`
}

func startCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the service, and wait until it serves",
		Example: `  agentctl service start
  agentctl service start && agentctl chat admin`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := Start(c.Context(), e); err != nil {
				return err
			}
			return report(e, "started")
		},
	}
}

// Start starts the installed service and waits until it serves.
func Start(ctx context.Context, e *command.Env) error {
	if err := installed(e); err != nil {
		return err
	}
	s, err := look(ctx, e)
	if err != nil {
		return err
	}
	if s.Active != "active" {
		e.Impatient = true // a registry that is away is what is expected
		if serving, err := up.Serving(ctx, e); err == nil && serving {
			return fault.New(codes.FailedPrecondition, fault.HomeLocked, "agentd serves this home already, and not as the service",
				"end that process ('agentctl up' ends with its chat), then start the service")
		}
	}
	return act(ctx, e, "start")
}

// Restart ends the service and starts it again, so that it reads its settings.
func Restart(ctx context.Context, e *command.Env) error { return act(ctx, e, "restart") }

func act(ctx context.Context, e *command.Env, verb string) error {
	if _, err := systemctl(ctx, e, verb, Unit); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	e.Impatient = true
	for {
		serving, err := up.Serving(ctx, e)
		if err == nil && serving {
			return nil
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fault.New(codes.DeadlineExceeded, fault.RegistryUnavailable, "the service was started and does not serve yet", "see 'agentctl service logs'")
			}
			return err
		}
		if s, err := look(ctx, e); err == nil && s.Active == "failed" {
			return fault.New(codes.Unavailable, fault.RegistryUnavailable, "the service has failed", "see 'agentctl service logs'")
		}
	}
}

func stopCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "Stop the service: current work may finish, nothing new starts",
		Example: `  agentctl service stop`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := installed(e); err != nil {
				return err
			}
			if _, err := systemctl(c.Context(), e, "stop", Unit); err != nil {
				return err
			}
			return report(e, "stopped")
		},
	}
}

func uninstallCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service and remove it; the home is kept",
		Long: `Stop the service and remove its unit. The home directory with all agents is kept. It
is not an error if the service is not installed.`,
		Example: `  agentctl service uninstall`,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := unitFile(e)
			if err != nil {
				return err
			}
			if _, err := find(e, "systemctl"); err != nil {
				return err
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return report(e, "not installed")
			}
			if _, err := systemctl(c.Context(), e, "disable", "--now", Unit); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fileFault(err)
			}
			if _, err := systemctl(c.Context(), e, "daemon-reload"); err != nil {
				return err
			}
			return report(e, "uninstalled")
		},
	}
}

// State is what systemd says of the service.
type State struct {
	Unit      string `json:"unit"`
	Installed bool   `json:"installed"`
	Enabled   string `json:"enabled"`
	Active    string `json:"active"`
	PID       string `json:"pid"`
}

func statusCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the service is installed and runs",
		Long:  `Show whether the service is installed and runs. The exit code is 1 when it does not run.`,
		Example: `  agentctl service status
  agentctl service status --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := look(c.Context(), e)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "unit", "installed", "enabled", "active", "pid").Data(s)
			err = screen.List(t, []State{s}, func(s State) []any {
				return []any{s.Unit, map[bool]string{true: "yes", false: "no"}[s.Installed], s.Enabled, s.Active, s.PID}
			})
			if err == nil && s.Active != "active" {
				return &command.ReportedError{}
			}
			return err
		},
	}
}

// look asks systemd about the service.
func look(ctx context.Context, e *command.Env) (State, error) {
	s := State{Unit: Unit, Installed: installed(e) == nil}
	out, err := systemctl(ctx, e, "show", "--property=ActiveState,UnitFileState,MainPID", Unit)
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ActiveState":
			s.Active = value
		case "UnitFileState":
			s.Enabled = value
		case "MainPID":
			s.PID = strings.TrimPrefix(value, "0")
		}
	}
	return s, nil
}

func logsCommand(e *command.Env) *cobra.Command {
	lines, follow := 100, false
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the newest lines of the service's log",
		Long:  `Show the newest lines that the service has logged, from the journal of systemd.`,
		Example: `  agentctl service logs
  agentctl service logs --lines 1000 | grep level=ERROR
  agentctl service logs --follow`,
		RunE: func(c *cobra.Command, _ []string) error {
			if lines < 1 || lines > 100_000 {
				return command.Usage(c, "--lines is 1 to 100000")
			}
			return logs(c.Context(), e, lines, follow)
		},
	}
	c.Flags().IntVar(&lines, "lines", lines, "how many")
	c.Flags().BoolVar(&follow, "follow", false, "print new lines as they come, until Ctrl-C")
	return c
}

func logs(ctx context.Context, e *command.Env, lines int, follow bool) error {
	program, err := find(e, "journalctl")
	if err != nil {
		return err
	}
	// --user-unit, and not --user --unit: that finds nothing where the journal is volatile,
	// also for those who may read it.
	args := []string{"--user-unit", Unit, "--no-pager", "--lines", fmt.Sprint(lines)}
	if follow {
		args = append(args, "--follow")
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	var errs bytes.Buffer
	c := exec.CommandContext(ctx, program, args...)
	c.Stdout, c.Stderr = e.Out, &errs
	err = c.Run()
	if follow && ctx.Err() != nil { // Ctrl-C is its normal end
		return nil
	}
	return failed(ctx, "journalctl", errs.String(), err)
}

func installed(e *command.Env) error {
	path, err := unitFile(e)
	if err != nil {
		return err
	}
	if _, err := find(e, "systemctl"); err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fault.Wrap(fault.New(codes.NotFound, fault.ServiceUnavailable, "the service is not installed", "install it with 'agentctl service install'"), err)
	}
	return nil
}

// report prints what was done.
func report(e *command.Env, what string) error {
	return e.Show(struct {
		Unit   string `json:"unit"`
		Result string `json:"result"`
	}{Unit, what}, Unit, "%s: %s", Unit, what)
}

// find looks for a program on the PATH of the caller.
func find(e *command.Env, program string) (string, error) {
	for _, dir := range filepath.SplitList(e.Getenv("PATH")) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", fault.New(codes.NotFound, fault.ServiceUnavailable, "there is no "+program+" on the PATH",
		"this command needs systemd; without it let another supervisor run 'agentd all'")
}

// systemctl calls the manager of this user. The call ends at a deadline.
func systemctl(ctx context.Context, e *command.Env, args ...string) (string, error) {
	program, err := find(e, "systemctl")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, program, append([]string{"--user"}, args...)...)
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), failed(ctx, "systemctl --user "+strings.Join(args, " "), errs.String(), err)
}

// failed is the error of a program of systemd, with the last line it printed.
func failed(ctx context.Context, what, text string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	fix := "see 'agentctl service logs'"
	if strings.HasPrefix(what, "journalctl") {
		fix = "where no journal is stored in /var/log/journal, only root and the group systemd-journal can read it; 'systemctl --user status theclaw' shows whether the service runs"
	}
	if strings.Contains(text, "bus") {
		fix = "log in as this user, not by su or sudo, so that systemd runs for it; else let another supervisor run 'agentd all'"
	}
	if why := lines[len(lines)-1]; why != "" {
		what += " failed: " + why
	} else {
		what += " failed: " + err.Error()
	}
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, what, fix), err)
}

func fileFault(err error) error {
	return fault.Wrap(fault.New(codes.FailedPrecondition, fault.ReadOnly, err.Error(), "make the directory writable for you"), err)
}
