// Package up implements the commands that start agentd. `agentctl gateway run` runs a gateway in
// the foreground. `agentctl up` does everything that a first conversation needs: it uses the
// services that already run; otherwise it starts them as a child process and stops them at the
// end, so that it never leaves a process behind.
//
//	registry answers? --yes--> use it, leave it running
//	       |no
//	   agentd all (log in run/agentd.log) --SERVING--> admin created and started
//	                                                        |
//	   SIGTERM, wait, SIGKILL after the grace  <--end--  chat admin
package up

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	agents "github.com/theclaw/agents/cmd/agentctl/internal/agent"
	"github.com/theclaw/agents/cmd/agentctl/internal/chat"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// Admin is the agent that talks to a new user.
	Admin = "admin"
	// ready is how long the services may take to serve.
	ready = 60 * time.Second
)

// Command answers the command up.
func Command(e *command.Env) *cobra.Command {
	o := chat.Options{Introduce: true}
	c := &cobra.Command{
		Use:   "up",
		Short: "Start the services here, create the agent admin, and talk to it",
		Long: `Start the services unless they run already, create and start the agent admin, and talk
to it. Services started by this command are stopped at the end. Without a terminal each
line of standard input is a message; --plain works as in 'agentctl chat'.`,
		Example: `  agentctl up
  printf 'hello\n' | agentctl up`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Check(c, e); err != nil {
				return err
			}
			return run(c.Context(), e, o)
		},
	}
	o.Flags(c)
	return c
}

func run(ctx context.Context, e *command.Env, o chat.Options) (err error) {
	stop, err := Serve(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := Create(ctx, e, Admin); err != nil {
		return err
	}
	return chat.Run(ctx, e, Admin, message.Console, o)
}

// Serve uses the services that serve the home, or starts them as a child process with
// more variables in its environment. stop ends what Serve started, and nothing else.
func Serve(ctx context.Context, e *command.Env, environment ...string) (stop func() error, err error) {
	e.Impatient = true // who is not there is started
	serving, err := Serving(ctx, e)
	if err != nil {
		return nil, err
	}
	if serving {
		return func() error { return nil }, nil
	}
	d, err := start(e, environment)
	if err != nil {
		return nil, err
	}
	if err := d.await(ctx, e); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return func() error {
		e.Note("the services stop with this command; 'agentd all' starts them again")
		return d.stop()
	}, nil
}

// Serving asks the registry once. Only "not running" means that services
// may be started here, and never when --registry names another one.
func Serving(ctx context.Context, e *command.Env) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := healthpb.NewHealthClient(e.Conn(command.Registry)).Check(ctx, &healthpb.HealthCheckRequest{})
	switch {
	case err == nil:
		return r.GetStatus() == healthpb.HealthCheckResponse_SERVING || e.Flags.Registry != "", nil
	case fault.From(err).Code == codes.Unavailable && e.Flags.Registry == "":
		return false, nil
	}
	return false, err
}

// healthy returns when the registry serves. It waits for the socket too.
func healthy(ctx context.Context, e *command.Env) error {
	for {
		r, err := healthpb.NewHealthClient(e.Conn(command.Registry)).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		if err != nil && !command.Unavailable(err) {
			return err
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Create makes an agent unless there is one, and starts it. Admin is a system agent.
func Create(ctx context.Context, e *command.Env, agent string) error {
	req := agents.NewRequest(agent)
	if agent == Admin {
		req.Kind = registry.AgentKind_AGENT_KIND_SYSTEM
	}
	_, err := e.Agents().CreateAgent(ctx, req)
	if err != nil && !fault.Is(err, fault.AgentExists) {
		return err
	}
	_, err = e.Agents().StartAgent(ctx, &registry.StartAgentRequest{AgentId: agent})
	return err
}
