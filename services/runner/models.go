package runner

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	"github.com/theclaw/agents/services/runner/internal/hook"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
)

// models gives turns the model their agent names.
type models struct {
	settings  *provider.Settings
	pool      *retry.Pool
	sandboxes *sandboxes
	trace     *tracing.Tracer
	probe     time.Duration // see Config; 0: retry.ProbeEvery
}

// Find implements modelcall.Models.
func (m *models) Find(providerName, name string) (modelcall.Model, error) {
	if p, ok, err := m.settings.Program(providerName, name); ok {
		if err != nil {
			return modelcall.Model{}, err
		}
		return m.program(p), nil
	}
	chosen := providerName != ""
	driver, name, window, err := m.settings.Resolve(providerName, name)
	if err != nil {
		return modelcall.Model{}, err
	}
	caller := m.pool.Caller(driver)
	var known *price.Price
	if p, ok := m.settings.Price(driver.Name(), name); ok {
		known = &p
	}
	out := modelcall.Model{Provider: driver.Name(), Name: name, Window: int64(window), Images: m.settings.Images(driver.Name(), name), Price: known, Try: m.try(driver.Name(), caller)}
	if !chosen && m.settings.Source == provider.FromNowhere {
		out.PeersWait = cmp.Or(m.probe, retry.ProbeEvery)
	}
	return out, nil
}

// Transcriber implements modelcall.Transcribers.
func (m *models) Transcriber(provider string, a openai.Audio) (modelcall.TryFunc, error) {
	driver, err := m.settings.Transcriber(provider)
	if err != nil {
		return nil, err
	}
	return m.try(provider, m.pool.Caller(driver.Transcriber(a))), nil
}

// problem is why a turn with these names would fail before it calls a provider, with the
// reason of its error and what to do; empty when it would not.
func (m *models) problem(providerName, name string) (problem, reason, fix string) {
	_, err := m.Find(providerName, name)
	return problemOf(err)
}

// transcriberProblem is the same for a provider that is to make text of voice messages.
func (m *models) transcriberProblem(providerName string) (problem, reason, fix string) {
	_, err := m.settings.Transcriber(providerName)
	return problemOf(err)
}

func problemOf(err error) (problem, reason, fix string) {
	e := model.AsError(err)
	if e == nil {
		return "", "", ""
	}
	return e.Message, e.Reason(), e.Fix()
}

// try makes one call of a model, in a span. No text of a prompt, an answer or an error
// is in it.
func (m *models) try(provider string, c *retry.Caller) modelcall.TryFunc {
	return func(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, modelcall.Try) {
		ctx, span := m.trace.Model(ctx, provider, req.Model)
		defer span.End()
		r, o := c.Try(ctx, req, onDelta)
		if o.Err != nil {
			span.Fail(o.Err.Class.String())
		} else {
			span.Usage(r.Usage.Input, r.Usage.Output, r.Usage.CachedInput, string(r.FinishReason))
		}
		return r, modelcall.Try{Err: o.Err, Counts: o.Counts, Again: o.Retry, Wait: o.Wait, Held: !o.Sent && o.Err != nil, Back: o.Back}
	}
}

// program is a model behind the pai program; it runs on the host.
func (m *models) program(p provider.Program) modelcall.Model {
	config := pai.Config{
		Name: p.Name, Command: p.Command, Provider: p.Provider, Env: p.Env,
		Sandbox: func() (pai.Sandbox, error) { return m.sandboxes.get(string(sandbox.Off)) },
	}
	return modelcall.Model{
		Provider: p.Name, Name: p.Model, Window: int64(p.ContextWindow),
		Program: func(at pai.Place) modelcall.TryFunc { return m.try(p.Name, m.pool.Caller(pai.New(config, at))) },
	}
}

// sandboxes are the sandboxes of this process, one for each mode that is asked for.
type sandboxes struct {
	opts sandbox.Options
	base *sandbox.Sandbox // not ours to close
	// docker runs the programs of conversations that have a container.
	docker *docker.Driver

	mu   sync.Mutex
	made map[sandbox.Mode]*sandbox.Sandbox
}

func newSandboxes(o sandbox.Options, base *sandbox.Sandbox, d docker.Options) *sandboxes {
	return &sandboxes{opts: o, base: base, docker: docker.New(d), made: map[sandbox.Mode]*sandbox.Sandbox{}}
}

// get returns the sandbox of a mode, and probes it the first time.
func (b *sandboxes) get(mode string) (shell.Sandbox, error) {
	m := sandbox.Mode(mode)
	if m == "" {
		m = sandbox.Required
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.base != nil && m == b.opts.Mode {
		return b.base, nil
	}
	if s := b.made[m]; s != nil {
		return s, nil
	}
	o := b.opts
	o.Mode = m
	// Not under a turn's context: what is found holds for the process.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := sandbox.New(ctx, o)
	if err != nil {
		return nil, err
	}
	b.made[m] = s
	return s, nil
}

// forHook is get for programs that never run outside of a sandbox.
func (b *sandboxes) forHook(mode string) (hook.Sandbox, error) {
	if mode != string(sandbox.Reduced) {
		mode = string(sandbox.Required)
	}
	s, err := b.get(mode)
	if err != nil {
		return nil, err
	}
	return s.(*sandbox.Sandbox), nil
}

// reportOf is what was found for a mode; it is looked for the first time.
func (b *sandboxes) reportOf(mode string) (sandbox.Report, error) {
	s, err := b.get(mode)
	if box, ok := s.(*sandbox.Sandbox); ok && err == nil {
		return box.Report(), nil
	}
	return sandbox.Report{}, err
}

// report is what was found for the usual mode, if it was looked for.
func (b *sandboxes) report() (sandbox.Report, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.base
	if s == nil {
		s = b.made[b.opts.Mode]
	}
	if s == nil {
		return sandbox.Report{}, false
	}
	return s.Report(), true
}

func (b *sandboxes) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.made {
		s.Close()
	}
	clear(b.made)
}
