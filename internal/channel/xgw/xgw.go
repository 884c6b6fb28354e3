package xgw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

const (
	defaultTimeout = 60 * time.Second
	flagV1         = "--session"
	flagV2         = "--conversation"
)

// Config is how the program is started.
type Config struct {
	Path        string        // default xgw; without a slash it is searched in PATH of Env
	SessionFlag string        // empty: --session, corrected by asking the program
	Timeout     time.Duration // of one send; default 60 s
	Env         []string      // NAME=value; only PATH, HOME and XGW_CONFIG are taken
	Run         channel.RunProgram
}

// XGW is a channel; it is safe for concurrent use.
type XGW struct {
	path    string
	timeout time.Duration
	env     []string
	fixed   string // the session option as configured
	runs    channel.RunProgram
}

// build is one version of the program: an upgrade is another file.
type build struct {
	path     string
	size     int64
	modified time.Time
}

// probed is the session option of each build that was asked, for all channels of
// this process: an answer costs two processes.
var probed sync.Map

func buildOf(program string) build {
	info, err := os.Stat(program)
	if err != nil {
		return build{path: program}
	}
	return build{program, info.Size(), info.ModTime()}
}

// optionOf is the session option to use.
func (x *XGW) optionOf(b build) string {
	if x.fixed != "" {
		return x.fixed
	}
	if flag, ok := probed.Load(b); ok {
		return flag.(string) //nolint:forcetypeassert // nothing else is stored
	}
	return flagV1
}

// New returns the channel. Whether the program exists is looked up at each
// send: it can be installed while messages wait.
func New(cfg Config) *XGW {
	x := &XGW{path: cfg.Path, timeout: cfg.Timeout, runs: cfg.Run}
	if x.path == "" {
		x.path = channel.NameXGW
	}
	if x.timeout <= 0 {
		x.timeout = defaultTimeout
	}
	if cfg.SessionFlag != "" {
		x.fixed = "--" + strings.TrimLeft(cfg.SessionFlag, "-")
	}
	for _, kv := range cfg.Env {
		if name, _, ok := strings.Cut(kv, "="); ok && slices.Contains([]string{"PATH", "HOME", "XGW_CONFIG"}, name) {
			x.env = append(x.env, kv)
		}
	}
	return x
}

// Name returns xgw.
func (*XGW) Name() string { return channel.NameXGW }

// Guarantee returns [channel.None]: xgw takes no delivery key.
func (*XGW) Guarantee() channel.Guarantee { return channel.None }

// Destination returns the account and a fingerprint of the chat: what is wrong with one
// chat delays no other.
func (*XGW) Destination(m channel.Message) string {
	rc := m.ReplyContext
	return channel.Clean(rc.ChannelID(), 64) + " " + channel.Fingerprint(rc.ChannelID(), rc.PeerID(), rc.SessionID())
}

// Send runs the program once, or twice when the first run refused its options.
func (x *XGW) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	ids, err := m.ReplyContext.Need("channel_id", "peer_id", "session_id")
	if err != nil {
		return channel.Receipt{}, err
	}
	if strings.Trim(m.Text, "\ufeff \t\r\n\v\f") == "" {
		return channel.Receipt{}, channel.Reject("", "the message has no text, which xgw cannot send", "")
	}
	program, err := lookPath(x.path, x.env)
	if err != nil {
		return channel.Receipt{}, missing(x.path, err)
	}
	env := append(slices.Clone(x.env),
		"THECLAW_DELIVERY_KEY="+m.Key,
		"THECLAW_ATTEMPT="+strconv.Itoa(m.Attempt),
		"THECLAW_MAYBE_DUPLICATE="+strconv.FormatBool(m.MaybeDuplicate),
	)
	if m.Fence.Token != 0 {
		env = append(env, "THECLAW_FENCE="+m.Fence.Resource+"="+strconv.FormatInt(m.Fence.Token, 10))
	}
	within, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	send := func(flag string) result {
		return x.run(within, program, env, m.Text,
			"send", "--channel", ids[0], "--peer", ids[1], flag, ids[2], "--json")
	}
	build := buildOf(program)
	flag := x.optionOf(build)
	res := send(flag)
	if x.fixed == "" && res.refusedOption() {
		if asked := sessionFlag(x.run(within, program, x.env, "", "send", "--help")); asked != "" && asked != flag {
			probed.Store(build, asked)
			res = send(asked)
		}
	}
	return x.outcome(ctx, res)
}

// sessionFlag reads the option's name from the help text; empty when the text
// has neither.
func sessionFlag(help result) string {
	for _, flag := range []string{flagV1, flagV2} {
		if strings.Contains(help.stdout, flag+" ") {
			return flag
		}
	}
	return ""
}

// answer is what --json prints.
type answer struct {
	Success *bool  `json:"success"`
	Error   string `json:"error"`
}

// parse finds the answer in what the program printed: plugins of a gateway may print
// lines of their own before or after it. Without one, Success is nil.
func parse(stdout string) (said answer) {
	for at := 0; at < len(stdout); {
		if stdout[at] == '{' {
			var a answer
			d := json.NewDecoder(strings.NewReader(stdout[at:]))
			if d.Decode(&a) == nil && a.Success != nil && (said.Success == nil || *a.Success) {
				said = a
			}
		}
		next := strings.IndexByte(stdout[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return said
}

// outcome classifies a finished run. parent is the caller's context: its end
// is our doing, the end of the send's own time is the channel's.
func (x *XGW) outcome(parent context.Context, res result) (channel.Receipt, error) {
	said := parse(res.stdout)
	structured := said.Success != nil
	switch {
	case structured && *said.Success, !structured && res.exit == 0:
		// What it has reported as sent is sent: xgw may well fail or be killed while it
		// closes the channel after that. It reports no id of the message.
		return channel.Receipt{}, nil
	case structured: // it reports in order that nothing was sent, also if it hangs after that
	case res.stopped && errors.Is(parent.Err(), context.Canceled):
		return channel.Receipt{}, &channel.Error{Class: channel.Interrupted, InDoubt: res.started, What: "the send was stopped", Err: res.err}
	case res.stopped:
		// Not Unavailable: each repeat of a send that hangs may arrive once more,
		// and an outage repeats for a day.
		return channel.Receipt{}, &channel.Error{
			Class: channel.Failed, InDoubt: res.started, What: "xgw send did not end in time and was killed",
			Fix: "check the channel with 'xgw channel health'", Err: res.err,
		}
	case !res.started, res.exit == 126, res.exit == 127: // as env and sh say: cannot run, not found
		cause := res.err
		if res.started {
			cause = errors.New(channel.Clean(res.stderr, 200))
		}
		return channel.Receipt{}, missing(x.path, cause)
	}
	// A crash after the send looks like one before it; only a program that
	// reports its failure in order says that nothing was sent.
	e := &channel.Error{
		Class: channel.Failed, InDoubt: !structured && !res.refused(),
		What: "xgw send failed", Fix: "check the channel with 'xgw channel health'", Err: res.err,
	}
	if cause := res.cause(said.Error); cause != "" {
		e.What += ": " + cause
	}
	return channel.Receipt{}, e
}

func missing(path string, cause error) *channel.Error {
	// A program that is there but cannot be started for want of memory or
	// descriptors is the same to the message: it waits.
	what := fmt.Sprintf("%s cannot be started", channel.Clean(path, 200))
	if errors.Is(cause, exec.ErrNotFound) {
		what = fmt.Sprintf("%s is not installed", channel.Clean(path, 200))
	}
	return &channel.Error{
		Class: channel.Unavailable, What: what,
		Fix: "install xgw in PATH of the deliverer, or set its path", Err: cause,
	}
}
