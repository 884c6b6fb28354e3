// Package process implements the commands about the processes behind the services:
// `agentctl ready` reports whether they serve, `log show` prints the log of an agent,
// `log level` changes the log level, `profile` takes a profile of one.
//
// The services of one process are called one by one, since only the process knows that
// they share it; an action that reaches it twice has the effect of one.
package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	processv1 "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
)

var services = []string{command.Registry, command.Runner, command.Deliverer, command.Gateway}

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{readyCommand(e), logCommand(e), profileCommand(e)}
}

// chosen are the services that --service names, or all that the home has. Services that run
// separately need no gateway: it counts where it has been started, or --gateway names one.
func chosen(e *command.Env, c command.Choice) []string {
	if c.Value != "all" {
		return []string{c.Value}
	}
	target, err := e.Target(command.Gateway)
	path, local := strings.CutPrefix(target, "unix://")
	if _, absent := os.Stat(path); err == nil && local && e.Flags.Gateway == "" && errors.Is(absent, fs.ErrNotExist) {
		return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return s == command.Gateway })
	}
	return services
}

func serviceFlag() command.Choice {
	return command.Choice{Value: "all", Values: append([]string{"all"}, services...)}
}

// state is a service for programs.
type state struct {
	Service string `json:"service"`
	Ready   bool   `json:"ready"`
	Status  string `json:"status"`
}

func readyCommand(e *command.Env) *cobra.Command {
	service := serviceFlag()
	c := &cobra.Command{
		Use:   "ready",
		Short: "Report whether the services are ready, for probes",
		Long: `Report whether each service is serving. The exit code is 0 when all are, and 1 when one
does not respond, is starting, or is draining. Unlike doctor it checks nothing else, so a
probe may call it every few seconds.`,
		Example: `  agentctl ready
  agentctl ready --service registry --timeout 2s`,
		RunE: func(c *cobra.Command, _ []string) error {
			list, whole := []state{}, true
			for _, s := range chosen(e, service) {
				st := check(c.Context(), e, s)
				list, whole = append(list, st), whole && st.Ready
			}
			t := screen.NewTable(e, "service", "status").Data(struct {
				Ready    bool    `json:"ready"`
				Services []state `json:"services"`
			}{whole, list})
			err := screen.List(t, list, func(s state) []any { return []any{s.Service, s.Status} })
			if err == nil && !whole {
				return &command.ReportedError{}
			}
			return err
		},
	}
	c.Flags().Var(&service, "service", "service to use")
	return c
}

func check(ctx context.Context, e *command.Env, service string) state {
	r, err := healthpb.NewHealthClient(e.Conn(service)).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return state{Service: service, Status: fault.From(err).What}
	}
	ready := r.GetStatus() == healthpb.HealthCheckResponse_SERVING
	return state{service, ready, strings.ToLower(strings.ReplaceAll(r.GetStatus().String(), "_", " "))}
}

// levels are the words for a level, in their order.
var levels = []string{"debug", "info", "warn", "error"}

// level is what a service logs, for programs.
type level struct {
	Service string `json:"service"`
	PID     int32  `json:"pid"`
	Level   string `json:"level"`
	Before  string `json:"before,omitempty"`
}

func logCommand(e *command.Env) *cobra.Command {
	service := serviceFlag()
	show := &cobra.Command{
		Use:   "level [LEVEL]",
		Short: "Show or change the log level of the services",
		Long: `Show or change the log level of the services: debug, info, warn or error. A change
lasts until the process ends; the next one starts with its --log-level. Services that do
not respond are listed.`,
		Example: `  agentctl log level
  agentctl log level debug
  agentctl log level info --service runner`,
		ValidArgs: levels,
		RunE: func(c *cobra.Command, args []string) error {
			to := processv1.LogLevel_LOG_LEVEL_UNSPECIFIED
			if len(args) == 1 {
				to = processv1.LogLevel(processv1.LogLevel_value["LOG_LEVEL_"+strings.ToUpper(args[0])])
				if to == 0 {
					return command.Usage(c, "%.40q is no level: use debug, info, warn or error", args[0])
				}
			}
			return turn(c.Context(), e, chosen(e, service), to)
		},
	}
	show.Flags().Var(&service, "service", "service to use")
	c := command.Group(e, &cobra.Command{
		Use:   "log",
		Short: "Show the log of an agent; change the log level of the services",
		Example: `  agentctl log show alice
  agentctl log level debug`,
	}, showCommand(e), show)
	unknown := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := unknown(c, args)
		if len(args) == 1 && len(c.SuggestionsFor(args[0])) == 0 && command.ID(args[0]) == nil { // an agent
			return fault.Usage(fault.From(err).What, "did you mean '"+c.CommandPath()+" show "+args[0]+"'?")
		}
		return err
	}
	return c
}

// turn changes the level of each service that answers; 0 only shows it.
func turn(ctx context.Context, e *command.Env, names []string, to processv1.LogLevel) error {
	list := []level{}
	away, silent := error(nil), []string{}
	seen := map[int32]string{} // what a process of several services logged before
	for _, name := range names {
		p, err := e.Process(name).GetProcess(ctx, &processv1.GetProcessRequest{})
		if err != nil && command.Unavailable(err) && len(names) > 1 {
			away, silent = err, append(silent, fault.From(err).What)
			continue
		} else if err != nil {
			return err
		}
		l := level{Service: name, PID: p.GetPid(), Level: command.Word(p.GetLogLevel(), "LOG_LEVEL_", "unspecified")}
		if to != 0 {
			r, err := e.Process(name).SetLogLevel(ctx, &processv1.SetLogLevelRequest{LogLevel: to})
			if err != nil {
				return err
			}
			if _, ok := seen[l.PID]; !ok {
				seen[l.PID] = command.Word(r.GetBefore(), "LOG_LEVEL_", "unspecified")
			}
			l.Level, l.Before = command.Word(to, "LOG_LEVEL_", "unspecified"), seen[l.PID]
		}
		list = append(list, l)
	}
	if len(list) == 0 && away != nil {
		return away
	}
	for _, what := range silent {
		e.Note("left out: %s", what)
	}
	t := screen.NewTable(e, "service", "pid", "level", "before").Data(struct {
		Services []level `json:"services"`
	}{list})
	return screen.List(t, list, func(l level) []any { return []any{l.Service, l.PID, l.Level, l.Before} })
}

// tooOld is the answer of a process from before this command.
func tooOld(err error, service string) error {
	if fault.From(err).Code != codes.Unimplemented {
		return err
	}
	return fault.Wrap(fault.New(codes.Unimplemented, fault.Unimplemented, "the "+service+" is of an earlier version, which has no profiles", "upgrade it"), err)
}
