package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/notifier"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/gateway"
	"github.com/theclaw/agents/services/registry"
	"github.com/theclaw/agents/services/runner"
)

// service is one row of what agentd can serve. Its name is its socket's, and its
// holder's in leases.
type service struct {
	name string
	make func(ctx context.Context, e *env, name string) (component, error)
}

// all is every service in the order of starting. They end in the reverse one: nothing is
// taken in any more when a runner drains, and its last replies still find their deliverer.
var all = []service{{"registry", makeRegistry}, {"deliverer", makeDeliverer}, {"runner", makeRunner}, {"gateway", makeGateway}}

// choose answers the services a word names, or nil.
func choose(word string) []service {
	if word == "all" {
		return all
	}
	for _, s := range all {
		if s.name == word {
			return []service{s}
		}
	}
	return nil
}

func makeRegistry(ctx context.Context, e *env, name string) (component, error) {
	dsn, err := e.database()
	if err != nil {
		return component{}, err
	}
	log := agentlog.New(e.redactor)
	log.Delay(50 * time.Millisecond)
	s, err := e.openRegistry(ctx, dsn, registry.Config{}, registry.Deps{
		Home: e.homeDir, Logger: e.log.With("service", "registry"), Metrics: obs.NewRegistryMetrics(e.metrics), Log: log,
		Trace:    e.traced[name].Tracer,
		Notifier: func() (string, bool) { return notifier.Home(e.getenv) },
		Redact:   e.redactor.Redact,
	})
	if err != nil {
		return component{}, err
	}
	// After the home's lock: a start rotates the token. So may whoever can write the
	// file, which is how it is rotated by command.
	if _, err := rpc.NewToken(e.homeDir.TokenFile()); err != nil {
		return component{}, errors.Join(err, s.Close())
	}
	return component{
		register: s.Register, policy: registry.Policy(), audit: s.Auditor(), able: s.Able, token: e.workerToken(), run: s.Run,
		close: func() error { return errors.Join(s.Close(), log.Close()) },
	}, nil
}

// worker is what the services besides the registry have alike: a connection to the registry and
// an identity in its leases.
type worker struct {
	conn    *grpc.ClientConn
	calls   grpc.ClientConnInterface // the connection, or the desk of this process before it
	holder  *lease.Holder
	address string
}

func (e *env) newWorker(name string) (worker, error) {
	socket, err := e.homeDir.Socket(name)
	if err != nil {
		return worker{}, err
	}
	holders := e.homeDir.HoldersDir()
	if e.remote {
		holders = "" // the registry cannot see our lock there
	}
	w := worker{address: "unix://" + socket}
	if e.listen != "" && len(e.services) == 1 {
		w.address = "dns:///" + e.advertised()
	}
	if w.holder, err = lease.NewHolder(holders, name); err != nil {
		return worker{}, err
	}
	if w.conn, err = e.dialRegistry(name); err != nil {
		return worker{}, errors.Join(err, w.holder.Close())
	}
	w.calls = w.conn
	if e.desk != nil {
		w.calls = &direct.Conn{Server: e.desk, As: rpc.Identity{Kind: rpc.Service, Name: name}, Far: w.conn}
	}
	return w, nil
}

func (w worker) close() error { return errors.Join(w.conn.Close(), w.holder.Close()) }

// sandboxSHA256 is the hash of theclaw-sandbox, in hexadecimal; set by the build.
var sandboxSHA256 string

// starter is theclaw-sandbox next to this program; empty where there is none.
func (e *env) starter() string {
	e.starterOnce.Do(func() {
		dir, err := ownDir()
		if err == nil {
			e.starterPath, err = sandbox.FindProgram(dir, sandboxSHA256)
		}
		if err != nil {
			e.log.Info("tools start slower: agentd starts itself as their sandbox", "cause", err)
		}
	})
	return e.starterPath
}

func makeRunner(_ context.Context, e *env, name string) (component, error) {
	w, err := e.newWorker(name)
	if err != nil {
		return component{}, err
	}
	root := ""
	if e.remote {
		root = e.homeDir.AgentsDir() // the registry's paths are those of its machine
	}
	s, err := runner.New(runner.Config{
		Version: versionText(), Root: root, Home: e.home, Agent: shim(e), Servers: e.homeDir.ServersDir(),
		Address: w.address, TTL: e.ttl, Grace: e.grace, ProvidersFile: filepath.Join(e.home, "providers.yaml"),
		Sandbox: sandbox.Options{Program: e.starter(), Forbidden: []string{e.homeDir.RunDir(), e.homeDir.TLSDir(), e.options.tls, e.homeDir.AuditDir()}},
	}, runner.Deps{
		Registry: w.calls, Holder: w.holder.ID(), Getenv: e.getenv, Abort: e.abort, Redactor: e.redactor,
		Trace:   e.traced[name].Tracer,
		Metrics: obs.NewRunnerMetrics(e.metrics), Logger: e.log.With("service", "runner"),
	})
	if err != nil {
		return component{}, errors.Join(err, w.close())
	}
	e.log.Info("model", "hint", s.Hint())
	// Not an error: agents may name other providers, and a key file may come later.
	if problem, fix := s.Problem(); problem != "" {
		e.log.Warn("the default model cannot be used, messages to agents that name no other fail", "problem", problem, "fix", fix)
	}
	return component{register: s.Register, policy: runner.Policy(), token: e.workerToken(), run: s.Run, close: w.close}, nil
}

// shim is the program `agent`: the one beside this one, else that of the PATH.
func shim(e *env) string {
	if dir, err := ownDir(); err == nil {
		if path := filepath.Join(dir, "agent"); exists(path) {
			return path
		}
	}
	for _, dir := range filepath.SplitList(e.getenv("PATH")) {
		if path := filepath.Join(dir, "agent"); filepath.IsAbs(dir) && exists(path) {
			return path
		}
	}
	return ""
}

// ownDir is the directory of this program's file, behind all links.
func ownDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	self, err = filepath.EvalSymlinks(self)
	return filepath.Dir(self), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func makeDeliverer(_ context.Context, e *env, name string) (component, error) {
	w, err := e.newWorker(name)
	if err != nil {
		return component{}, err
	}
	runners, err := e.runners(w, name)
	if err != nil {
		return component{}, errors.Join(err, w.close())
	}
	s := deliverer.New(deliverer.Config{
		Address: w.address, Grace: e.grace, TTL: e.ttl, Starter: e.starter(),
	}, deliverer.Deps{
		Registry: w.calls, Holder: w.holder.ID(), Runners: runners, Abort: e.abort, Resolve: e.resolve, Environ: e.vars.Environ(os.Environ()), Redactor: e.redactor,
		Trace:   e.traced[name].Tracer,
		Metrics: obs.NewDelivererMetrics(e.metrics), Logger: e.log.With("service", "deliverer"),
	})
	return component{register: s.Register, policy: deliverer.Policy(), token: e.workerToken(), run: s.Run, close: runners.closing(w.close)}, nil
}

func makeGateway(_ context.Context, e *env, name string) (component, error) {
	at, err := e.homeDir.Gateway()
	if err != nil {
		return component{}, err
	}
	addr, problem := listenHTTP(e.options, at, e.log)
	w, err := e.newWorker(name)
	if err != nil {
		return component{}, err
	}
	runners, err := e.runners(w, name)
	if err != nil {
		return component{}, errors.Join(err, w.close())
	}
	s, err := gateway.New(gateway.Config{HTTP: addr, TTL: e.ttl, Problem: problem, PublicURL: at.PublicURL, TrustedProxies: at.TrustedProxies}, gateway.Deps{
		Registry: w.calls, Holder: w.holder.ID(), Runners: runners, Version: versionText(), Resolve: e.resolve, Redactor: e.redactor,
		Trace:   e.traced[name].Tracer,
		Metrics: obs.NewGatewayMetrics(e.metrics), Logger: e.log.With("service", "gateway"),
	})
	if err != nil {
		return component{}, errors.Join(err, runners.closing(w.close)())
	}
	return component{
		register: s.Register, policy: gateway.Policy(), token: e.workerToken(), run: s.Run,
		close: func() error { return errors.Join(s.Close(), runners.closing(w.close)()) },
	}, nil
}

// resolve reads a secret by its reference.
func (e *env) resolve(_ context.Context, ref string) (string, error) {
	return reference.Read(e.home, e.getenv, ref)
}
