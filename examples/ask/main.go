// Command ask shows how a program talks to an agent: it puts one message into the
// agent's inbox, waits for the outcome, and prints the reply event.
//
//	ask -agent alice -as report -key report-2026-11-20 "Is there news?"
//
// It imports the wire contract (proto/gen) and nothing else of this repository,
// so it can be copied. Two things make it safe to run again after any failure:
// the key, under which the inbox stores the message once, and the run, which the
// registry remembers, so that a second call returns the first reply.
//
// It sends as external:console:ask:dm:NAME:NAME. The address gives each NAME its own
// conversation, and the channel type console means that the reply is not sent anywhere:
// the caller reads it from the thread.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func main() { os.Exit(Main(os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("ask", flag.ContinueOnError)
	f.SetOutput(stderr)
	q := question{}
	home := f.String("home", getenv("THECLAW_HOME"), "home `directory` of the runtime; default $THECLAW_HOME")
	f.StringVar(&q.agent, "agent", "", "`id` of the agent to ask")
	f.StringVar(&q.name, "as", "report", "`name` of the conversation: lower-case letters, digits, _ and -")
	f.StringVar(&q.key, "key", "", "idempotency `key` of this message; ask again with the same one")
	if f.Parse(args) != nil {
		return 2
	}
	q.text = strings.Join(f.Args(), " ")
	if *home == "" || q.agent == "" || q.key == "" || q.text == "" {
		fmt.Fprintln(stderr, "Error: -home, -agent, -key and a text are needed - see 'ask -help'")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	a, err := ask(ctx, *home, q)
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	fmt.Fprintf(stdout, "%s, event %d from %s: %s\n", a.thread, a.event.GetId(), a.event.GetSource(), a.event.GetContent())
	return 0
}

// bearer is the capability token of the home's owner. It changes when the registry
// starts; a program that lives longer reads it again on UNAUTHENTICATED.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false because the socket never leaves the machine.
func (bearer) RequireTransportSecurity() bool { return false }

type question struct{ agent, name, key, text string }

type reply struct {
	thread string
	event  *registryv1.Event
}

func ask(ctx context.Context, home string, q question) (reply, error) {
	run := filepath.Join(home, "run")
	token, err := os.ReadFile(filepath.Join(run, "token"))
	if err != nil {
		return reply{}, fmt.Errorf("read token: %w", err)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(run, "registry.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(string(token)))))
	if err != nil {
		return reply{}, fmt.Errorf("connect registry: %w", err)
	}
	defer conn.Close()
	id, err := push(ctx, registryv1.NewThreadServiceClient(conn), q)
	if err != nil {
		return reply{}, fmt.Errorf("push message: %w", err)
	}
	turn, err := await(ctx, registryv1.NewTurnServiceClient(conn), q.agent, id)
	if err != nil {
		return reply{}, fmt.Errorf("wait for message %d: %w", id, err)
	}
	if turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		return reply{}, fmt.Errorf("message %d has no reply: %s %s", id, turn.GetFate(), turn.GetError())
	}
	r, err := registryv1.NewThreadServiceClient(conn).PeekEvents(ctx, &registryv1.PeekEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: q.agent, ThreadId: turn.GetThreadId()}, AfterId: turn.GetReplyEventId() - 1, Limit: 1,
	})
	if err != nil {
		return reply{}, fmt.Errorf("read reply: %w", err)
	}
	if len(r.GetEvents()) != 1 {
		return reply{}, errors.New("the reply is not in its thread")
	}
	return reply{turn.GetThreadId(), r.GetEvents()[0]}, nil
}
