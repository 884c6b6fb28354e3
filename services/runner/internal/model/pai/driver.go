package pai

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/session"
)

// Config of a driver.
type Config struct {
	// Name is the provider as agents name it.
	Name string
	// Command is the program, a name in Path or a path.
	Command string
	// Provider is what --provider says.
	Provider string
	// Env is what pai needs of our environment: HOME, PATH, keys.
	Env map[string]string
	// Sandbox runs programs on the host and ends their process tree.
	Sandbox func() (Sandbox, error)
}

// Sandbox runs a program; [sandbox.Sandbox] of mode off does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Place is where the calls of one turn happen.
type Place struct {
	AgentID, ThreadID string
	// Key of the turn, and Fence of the lease: resource=token.
	Key, Fence string
	// SandboxMode of the agent; anything but off is refused.
	SandboxMode string
	// Workdir and Sessions are absolute directories.
	Workdir, Sessions string
	// Begin is called right before the program starts; its error prevents that.
	Begin func() error
	// Spare: another try may be made, and an answer that looks broken off is
	// then an error.
	Spare bool
	// Aside is a call without tools, in a session of its own that is gone after it.
	Aside bool
}

// Driver makes the calls of one turn.
type Driver struct {
	c  Config
	at Place
}

// New makes a driver for a turn.
func New(c Config, at Place) *Driver { return &Driver{c, at} }

// Name implements model.Driver.
func (d *Driver) Name() string { return d.c.Name }

// Resume is the text that pai gets instead of a message when the turn goes on after
// tools that have run.
const Resume = "[The call before this one broke off. The tools above have run: do not repeat what they did. Go on from here.]"

// aside is the end of the name of a session of a side call. No conversation has it:
// in the names of peers and channels a slash is encoded.
const aside = "/aside"

// Generate implements model.Driver with one run of pai.
func (d *Driver) Generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	return model.Receive(req, onDelta, func(onDelta func(model.Delta)) (model.Response, error) { return d.generate(ctx, req, onDelta) })
}

func (d *Driver) generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if d.at.SandboxMode != string(sandbox.Off) {
		return model.Response{}, model.Errorf(model.Config, "%s: pai runs its own bash outside of any sandbox, and sandbox.mode of this agent is %s; "+
			"set sandbox.mode to off if that is wanted, or name a provider without pai/", d.c.Name, d.at.SandboxMode)
	}
	box, err := d.c.Sandbox()
	if err != nil {
		return model.Response{}, d.wrap(model.Config, "no program can be started: "+fault.From(err).What, err)
	}
	path, err := d.find()
	if err != nil {
		return model.Response{}, err
	}
	if err := os.MkdirAll(d.at.Workdir, 0o700); err != nil {
		return model.Response{}, d.wrap(model.Config, "the working directory cannot be made", err)
	}
	words, err := d.options(ctx, box, path)
	if err != nil {
		return model.Response{}, err
	}
	before, input := split(req.Messages)
	name, tidy := d.at.ThreadID, session.Files.Tidy
	if d.at.Aside {
		if words[optTurns] == "" {
			return model.Response{}, d.error(model.Config, "this version cannot be asked without its tools: it does not know "+spellings[optTurns][0])
		}
		name, tidy = name+aside, session.Files.Remove
	}
	files, err := session.Prepare(d.at.Sessions, name, req.System, before, input)
	if err != nil {
		return model.Response{}, d.wrap(model.Unavailable, "the session file cannot be written", err)
	}
	defer tidy(files)
	if d.at.Begin != nil {
		if err := d.at.Begin(); err != nil {
			return model.Response{}, d.wrap(model.Canceled, "the call was not begun", err)
		}
	}
	argv := []string{
		path, "chat", words[optStream], words[optJSON], words[optSession], files.Session, words[optSystem], files.System,
		words[optProvider], d.c.Provider, words[optModel], req.Model, words[optInput], files.Input,
	}
	if d.at.Aside {
		argv = append(argv, words[optTurns], "1")
	}
	return d.call(ctx, box, argv, req, onDelta)
}

// call starts pai and follows it to its end.
func (d *Driver) call(ctx context.Context, box Sandbox, argv []string, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	pipe := newPipe(stop)
	start := time.Now()
	var result sandbox.Result
	var ran error
	go func() {
		defer pipe.close()
		result, ran = box.Run(run, sandbox.Command{
			Argv: argv, Workdir: d.at.Workdir, Network: true, Timeout: sandbox.MaxTimeout, OutputCap: 64 << 10, Limits: sandbox.Unlimited, Env: d.env(),
			OnStdout: pipe.stdout, OnStderr: pipe.stderr,
		})
	}()
	said := answer{onDelta: onDelta, start: start, messages: len(req.Messages)}
	if d.at.Aside {
		said.barred = stop
	}
	for p := range pipe.pieces() {
		said.take(p)
	}
	said.flush()
	// What ended the call from our side explains whatever it looks like.
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return model.Response{}, d.wrap(model.Canceled, "the call was canceled", ctx.Err())
	case ctx.Err() != nil:
		return model.Response{}, d.wrap(model.Timeout, "the time for the answer is used up", ctx.Err())
	case said.offered:
		return model.Response{}, d.error(model.Config, "this version offers its tools though it was told not to, and was ended")
	case pipe.overflow():
		return model.Response{}, d.error(model.BadResponse, fmt.Sprintf("pai said more than %d MiB and was ended", maxQueued>>20))
	case ran != nil:
		return model.Response{}, d.notStarted(ran)
	}
	if e := d.judge(&said, result); e != nil {
		return model.Response{}, e
	}
	finish := model.FinishStop
	if said.finish == "length" || said.full {
		finish = model.FinishLength
	}
	return model.Response{
		Text: said.text.String(), FinishReason: finish, Model: req.Model, FirstToken: said.first, Duration: time.Since(start),
	}, nil
}

// split makes the session and the message of a prompt. pai replaces a question
// at the end of a session, so all of them go together as the message.
func split(messages []model.Message) (before []model.Message, input string) {
	n := len(messages)
	for n > 0 && messages[n-1].Role == model.RoleUser {
		n--
	}
	if n == len(messages) && n > 0 {
		return messages, Resume
	}
	var parts []string
	for _, m := range messages[n:] {
		parts = append(parts, m.Text)
	}
	return messages[:n], strings.Join(parts, "\n\n")
}

// env is what pai, and the bash it runs, get.
func (d *Driver) env() map[string]string {
	env := map[string]string{
		"TOOL_IDEMPOTENCY_KEY": d.at.Key, "THECLAW_FENCE": d.at.Fence, "XAR_AGENT_ID": d.at.AgentID, "XAR_CONV_ID": d.at.ThreadID,
	}
	for k, v := range d.c.Env {
		if v != "" {
			env[k] = v
		}
	}
	return env
}

// find is the path of the program, by the PATH pai will have.
func (d *Driver) find() (string, error) {
	command := d.c.Command
	if command == "" {
		command = "pai"
	}
	candidates := []string{command}
	if !strings.ContainsRune(command, '/') {
		candidates = nil
		for _, dir := range filepath.SplitList(d.c.Env["PATH"]) {
			if filepath.IsAbs(dir) {
				candidates = append(candidates, filepath.Join(dir, command))
			}
		}
	}
	for _, path := range candidates {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", d.error(model.Config, fmt.Sprintf("the program %s is not found; install it, or name its path in PAI_COMMAND", command))
}

func (d *Driver) error(class model.Class, message string) *model.Error {
	return &model.Error{Class: class, Message: d.c.Name + ": " + message}
}

func (d *Driver) wrap(class model.Class, message string, cause error) *model.Error {
	e := d.error(class, message)
	e.Err = cause
	return e
}
