package deliverer

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/sandbox"
)

// programs runs what sends for a channel as the runner runs pai: on the host, as
// ourselves, below a process that ends the complete tree when this one is gone. That costs
// the start of one more program for each send: 1.4 ms where theclaw-sandbox is installed,
// else 14 ms. It is opened at the first send.
type programs struct {
	starter string // of [sandbox.FindProgram]; empty: this program

	mu  sync.Mutex
	box *sandbox.Sandbox
}

func (p *programs) sandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box != nil {
		return p.box, nil
	}
	box, err := sandbox.New(ctx, sandbox.Options{Mode: sandbox.Off, Program: p.starter})
	if err != nil {
		return nil, err
	}
	if report := box.Report(); report.Level != sandbox.LevelOff { // tried again at the next send
		box.Close()
		return nil, fmt.Errorf("no program can be started: %s", strings.Join(report.Problems, "; "))
	}
	p.box = box
	return box, nil
}

func (p *programs) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box != nil {
		p.box.Close()
		p.box = nil
	}
}

// run is a channel.RunProgram.
func (p *programs) run(ctx context.Context, c channel.Program) (channel.ProgramEnd, error) {
	box, err := p.sandbox(ctx)
	if err != nil {
		return channel.ProgramEnd{}, err
	}
	r, err := box.Run(ctx, sandbox.Trusted(c.Argv, c.Env, c.Stdin, c.Within, c.Stdout, c.Stderr))
	return channel.ProgramEnd{Exit: r.ExitCode, Signal: r.Signal, Stopped: r.TimedOut || r.Canceled}, err
}
