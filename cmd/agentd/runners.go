package main

import (
	"errors"
	"strings"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	find "github.com/theclaw/agents/internal/rpc/runs"
)

// runners find a runner for a service: that of the home, else one that has a lease. No connection is made before the
// first call.
type runners struct {
	*find.Client
	near *grpc.ClientConn
}

func (e *env) runners(w worker, name string) (*runners, error) {
	socket, err := e.homeDir.Socket("runner")
	if err != nil {
		return nil, err
	}
	near, err := e.dialRunner(name, "unix://"+socket)
	if err != nil {
		return nil, err
	}
	return &runners{find.New(find.Options{
		Registry: w.calls, Near: near, Dial: func(address string) (*grpc.ClientConn, error) { return e.dialRunner(name, address) },
	}), near}, nil
}

// dialRunner connects to a runner: at a socket with the token of the home, else with the certificate of the service.
func (e *env) dialRunner(as, address string) (*grpc.ClientConn, error) {
	o := rpc.DialOptions{UserAgent: "agentd/" + versionText(), Stats: e.traced[as].Client, Safe: safe}
	if strings.HasPrefix(address, "unix:") {
		o.TokenPath, o.As = e.homeDir.TokenFile(), rpc.Identity{Kind: rpc.Service, Name: as}
		return rpc.Dial(address, o)
	}
	store, err := e.certificate(as)
	if err != nil {
		return nil, err
	}
	o.Creds = mtls.Client(store, "runner")
	return rpc.Dial(address, o)
}

// closing is close, with the connections to runners.
func (r *runners) closing(then func() error) func() error {
	return func() error {
		r.Close()
		return errors.Join(r.near.Close(), then())
	}
}
