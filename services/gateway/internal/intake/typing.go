package intake

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// maxTyping is how many conversations of an account show at a time that an answer is written.
	maxTyping = 64
	// typingDelay is how long an answer takes before typing is shown: most come sooner, and each
	// display is a request to the platform. It is at most a second after the message (S2-46).
	typingDelay = 500 * time.Millisecond
	// runWait is how long one call waits for the end of a run.
	runWait = time.Minute
	// typingName is the cursor that has the runs for which typing is shown, maxTypingSize its most bytes.
	typingName    = "typing"
	maxTypingSize = 4 << 10
)

// typing are the runs for which an account shows typing. They are stored with the cursors of the account when it ends,
// so that another start goes on with them: without a call for a message, and without a search for what runs.
//
//	accepted --> shown --(run has ended)--> forgotten
//	               |
//	               '--(the account ends)--> cursor --(start)--> shown
//
// While the account receives they are not stored, since that would be a commit for a message. A gateway that is killed
// loses them, and nothing else: typing is shown again for the messages that the platform delivers again. A run that has
// ended meanwhile is found to have, before anything is shown.
type typing struct {
	mu    sync.Mutex
	shown []typed // the newest last; at most maxTyping
	kept  string  // what the cursor had at the start
	ready bool    // the cursor was read
}

// typed is a run and the message that it answers.
type typed struct {
	Agent   string `json:"agent"`
	Run     string `json:"run"`
	Session string `json:"session"`
	Peer    string `json:"peer"`
	Kind    string `json:"kind"`
	Thread  string `json:"thread,omitempty"`
	Message string `json:"message,omitempty"`
	Guild   string `json:"guild,omitempty"`
	Team    string `json:"team,omitempty"`
}

// begin notes a run; false: it is shown already, or there are too many.
func (t *typing) begin(r typed) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.shown) >= maxTyping || slices.ContainsFunc(t.shown, func(o typed) bool { return o.Agent == r.Agent && o.Run == r.Run }) {
		return false
	}
	t.shown = append(t.shown, r)
	return true
}

// end forgets a run.
func (t *typing) end(r typed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown = slices.DeleteFunc(t.shown, func(o typed) bool { return o == r })
}

// started says that the cursor was read: from now on it may be written.
func (t *typing) started(kept string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.ready = kept, true
}

// changed returns what the cursor is to have at the end; false: it has that already. The newest runs come first: the oldest are
// left out when they do not fit.
func (t *typing) changed() (value string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []byte
	for _, r := range slices.Backward(t.shown) {
		one, _ := json.Marshal(r) // texts: it cannot fail
		if len(list)+len(one)+1 <= maxTypingSize {
			list = append(append(list, one...), '\n')
		}
	}
	return string(list), t.ready && string(list) != t.kept
}

// keepTyping gives the runs to the cursor, if it has others.
func (a *Account) keepTyping() {
	if value, ok := a.typing.changed(); ok {
		a.Keep(typingName, value)
	}
}

// resumeTyping shows typing for the runs for which it was shown before the account started.
func (a *Account) resumeTyping() {
	if _, ok := a.out.(channel.Typer); !ok {
		return
	}
	kept, err := a.Cursor(a.ctx, typingName)
	if err != nil {
		a.deps.Logger.Debug("typing is not resumed", "account", a.name, "error", fault.Chain(err))
	}
	a.typing.started(kept)
	lines := strings.Split(kept, "\n")
	for _, line := range slices.Backward(lines) { // the oldest first
		var r typed
		if json.Unmarshal([]byte(line), &r) == nil {
			a.show(r)
		}
	}
}

// showTyping shows in the conversation of a message that an answer is being written, until its run has ended.
func (a *Account) showTyping(u channel.Update, r *registryv1.AcceptedMessage) {
	a.show(typed{
		Agent: r.GetAgentId(), Run: r.GetRunId(), Session: u.SessionID, Peer: u.PeerID, Kind: u.Kind, Thread: u.Thread, Message: u.MessageID, Guild: u.Guild, Team: u.Team,
	})
}

func (a *Account) show(r typed) {
	t, ok := a.out.(channel.Typer)
	if !ok || r.Run == "" || !a.typing.begin(r) {
		return
	}
	a.goes(func() {
		ctx, cancel := context.WithCancel(a.ctx)
		defer cancel()
		a.goes(func() {
			defer cancel()
			if a.awaitRun(ctx, r); a.ctx.Err() == nil { // else another start goes on
				a.typing.end(r)
			}
		})
		if pause.For(ctx, typingDelay) != nil {
			return
		}
		to := a.replyContext(channel.Update{SessionID: r.Session, PeerID: r.Peer, Kind: r.Kind, Thread: r.Thread, MessageID: r.Message, Guild: r.Guild, Team: r.Team})
		for failures := 0; failures < noticeTries; {
			within, done := context.WithTimeout(ctx, noticeLimit)
			gap, err := t.Typing(within, to)
			done()
			if err != nil {
				failures++
				gap = again.Last
			}
			if pause.For(ctx, max(gap, again.First)) != nil {
				return
			}
		}
	})
}

// awaitRun waits until a run has ended, or what becomes of it cannot be known.
func (a *Account) awaitRun(ctx context.Context, r typed) {
	for failures := 0; failures < noticeTries && ctx.Err() == nil; {
		within, done := context.WithTimeout(ctx, runWait+acceptLimit)
		got, err := a.deps.Turns.GetTurn(within, &registryv1.GetTurnRequest{AgentId: r.Agent, Key: r.Run, Wait: durationpb.New(runWait)})
		done()
		switch {
		case err != nil:
			failures++
			_ = pause.For(ctx, again.Wait(failures))
		case got.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED:
			return
		}
	}
}
