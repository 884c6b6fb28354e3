// Package drill implements the command `agentctl drill`: it kills the runtime repeatedly
// while messages pass through it, and checks what happened to every message.
//
//	a home of its own ---> agentd (the one next to agentctl) ---> a webhook sink here
//	        ^                 |
//	        |   kill -9 at a random instant, messages pushed continuously
//	        |                 v
//	        +---- start <--- read in the journal where each message was
//
// It promises to touch nothing of the user's: home, HOME and environment of agentd are
// its own and are removed at the end, unless a promise was broken; then they are kept as
// evidence. The model is the built-in offline one. The promises of agentd are not
// implemented here again: the journal is compared with what the sink received and the
// tools did, and package invariant checks the rest.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/drill/site"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
)

const (
	defaultKills = 20
	maxKills     = 100_000
	// perKill is how many messages are sent for each kill.
	perKill = 6
	// within is the longest time that work goes on before a kill.
	within = 250 * time.Millisecond
)

// Command answers the command drill.
func Command(e *command.Env) *cobra.Command {
	kills := defaultKills
	var seed uint64
	c := &cobra.Command{
		Use:   "drill",
		Short: "Kill the runtime under load, and check that nothing is lost",
		Long: `Start the services in a temporary home, send messages to two agents, kill the
services (kill -9) at random instants, and check every message: was it answered exactly
once, and did the peer get a repeat that was not flagged as one? The table shows where
the messages were when the services died. Your own home is not touched, and no model or
network is needed. The exit code is 1 when a promise was broken; the temporary home is
then kept.`,
		Example: `  agentctl drill
  agentctl drill --kills 200
  agentctl drill --json | jq '.states[]'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("seed") {
				seed = uint64(rand.Uint32())
			}
			return run(c.Context(), e, kills, seed)
		},
	}
	command.NumberFlag(c, &kills, "kills", 1, maxKills, "number of kills")
	c.Flags().Uint64Var(&seed, "seed", 0, "repeat the instants and messages of an earlier drill")
	return c
}

func run(ctx context.Context, e *command.Env, kills int, seed uint64) (err error) {
	program, err := find(e.Getenv)
	if err != nil {
		return err
	}
	// Not in TMPDIR: a socket's path has little room.
	dir, err := os.MkdirTemp("/tmp", "theclaw-drill-")
	if err != nil {
		return fault.Wrap(fault.New(codes.FailedPrecondition, fault.ReadOnly, err.Error(), "make room in /tmp"), err)
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	d, err := begin(ctx, dir, program, e.Getenv("PATH"), seed)
	if err != nil {
		return err
	}
	defer d.end()
	step, done := screen.Progress(e, kills, "kills")
	start := time.Now()
	for range kills {
		if err := d.strike(ctx); err != nil {
			done()
			return err
		}
		step()
	}
	done()
	if err := d.finish(ctx); err != nil {
		return err
	}
	v, err := d.judge(ctx)
	if err != nil {
		return err
	}
	v.Kills, v.Seed, v.Seconds = kills, seed, time.Since(start).Seconds()
	if keep = !v.OK; keep {
		v.Home = d.site.Home.Path()
	}
	if err := v.print(e); err != nil {
		return err
	}
	if !v.OK {
		return &command.ReportedError{}
	}
	return nil
}

// find looks for agentd beside this program, then on the PATH: what was built
// together is drilled together.
func find(getenv func(string) string) (string, error) {
	dirs := filepath.SplitList(getenv("PATH"))
	if self, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Dir(self)}, dirs...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, "agentd")
		if info, err := os.Stat(path); filepath.IsAbs(path) && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fault.Wrap(fault.New(codes.NotFound, fault.ServiceUnavailable, "there is no agentd next to agentctl or on the PATH",
		"run 'make build', or 'make install'"), exec.ErrNotFound)
}

// drill is one run of the command.
type drill struct {
	site   *site.Site
	sink   *sink
	load   *load
	chance *rand.Rand
	tools  bool // programs can be run here
}

var agents = []string{"drill-a", "drill-b"}

func begin(ctx context.Context, dir, program, path string, seed uint64) (_ *drill, err error) {
	d := &drill{chance: rand.New(rand.NewPCG(seed, 0))}
	if d.sink, err = newSink(); err != nil {
		return nil, err
	}
	if d.site, err = site.New(dir, program, path); err != nil {
		d.sink.close()
		return nil, err
	}
	d.load = &load{site: d.site}
	if err := d.site.Start(); err != nil {
		d.end()
		return nil, err
	}
	first, cancel := context.WithTimeout(ctx, site.Patience)
	defer cancel()
	for _, id := range agents {
		if err := d.site.Create(first, id, d.sink.config()); err != nil {
			err = d.site.Explain(first, err)
			d.end()
			return nil, err
		}
	}
	if d.tools, err = d.site.Sandboxed(first); err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

func (d *drill) end() {
	d.site.Kill()
	d.load.stop()
	d.site.Close()
	d.sink.close()
}

// strike sends some messages, kills at a random instant, looks, and starts again.
func (d *drill) strike(ctx context.Context) error {
	pushed := d.load.send(ctx, d.messages()...)
	select { // the kill is to hit work, and not a start
	case <-pushed:
	case <-d.site.Exited():
		return d.site.Explain(ctx, errors.New("it ended unexpectedly"))
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := pause.For(ctx, time.Duration(d.chance.Int64N(int64(within)))); err != nil {
		return err
	}
	at := d.site.Kill()
	if err := d.load.look(ctx, at); err != nil {
		return err
	}
	return d.site.Start()
}

func (d *drill) messages() []*message {
	kinds := []string{"say", "say", "slow", "run"}
	if !d.tools {
		kinds = kinds[:3]
	}
	out := make([]*message, perKill)
	for i := range out {
		out[i] = &message{
			agent: agents[d.chance.IntN(len(agents))], peer: fmt.Sprintf("p%d", d.chance.IntN(8)),
			kind: kinds[d.chance.IntN(len(kinds))], hits: map[state]time.Time{},
		}
	}
	return out
}

// finish waits until every message has come to its end, or patience has.
func (d *drill) finish(ctx context.Context) error {
	t := time.NewTimer(site.Patience)
	defer t.Stop()
	select {
	case <-d.load.done():
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.load.stop()
	return d.site.Stop()
}

// runs are the lines that tools have written, of all agents in order.
func (d *drill) runs() ([]string, error) {
	var out []string
	for _, id := range agents {
		b, err := os.ReadFile(filepath.Join(d.site.Home.AgentDir(id), "workdir", "ran.txt"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		out = append(out, strings.Fields(string(b))...)
	}
	return out, nil
}
