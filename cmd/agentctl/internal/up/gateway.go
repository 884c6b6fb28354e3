package up

import (
	"errors"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
)

// Gateway answers the command gateway.
func Gateway(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:     "gateway",
		Short:   "Run the gateway alone",
		Example: "  agentctl gateway run --port 19001",
	}, runCommand(e))
}

func runCommand(e *command.Env) *cobra.Command {
	port := 0
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the gateway in the foreground, until Ctrl-C",
		Long: `Run the gateway of this home in the foreground, as 'agentd gateway' does. It needs a
registry: 'agentctl up', the service or 'agentd all' have a gateway already, and a home has
one. --port replaces the port of gateway.http, of the variable PORT and of the profile.`,
		Example: `  agentctl gateway run
  agentctl gateway run --port 19001`,
		RunE: func(c *cobra.Command, _ []string) error {
			args := []string{"gateway"}
			if c.Flags().Changed("port") {
				if port < 0 || port > 65535 {
					return command.Usage(c, "--port is 0 to 65535")
				}
				args = append(args, "--port", strconv.Itoa(port))
			}
			return foreground(c, e, args)
		},
	}
	c.Flags().IntVar(&port, "port", port, "port on the address of gateway.http; 0: a free one (default: that of the settings)")
	return c
}

// foreground runs agentd until it ends. Ctrl-C drains it.
func foreground(c *cobra.Command, e *command.Env, args []string) error {
	program, err := Program()
	if err != nil {
		return err
	}
	for _, f := range [][2]string{{"--registry", e.Flags.Registry}, {"--tls", e.Flags.TLS}} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	cmd := exec.CommandContext(c.Context(), program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if cmd.Env, err = environ(e); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = e.Out, e.Err
	cmd.SysProcAttr = command.Child(syscall.SIGTERM)
	// The death signal is tied to the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return &command.ReportedError{} // it has printed why
	}
	if c.Context().Err() != nil { // it drained
		return nil
	}
	return err
}
