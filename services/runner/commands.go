package runner

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/source"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// commands carries out the chat commands that the registry does not.
type commands struct{ *Service }

// Command implements [turn.Commands].
func (s commands) Command(ctx context.Context, c turn.Command) (string, error) {
	do, ok := map[string]func(context.Context, turn.Command) (string, error){
		chatcommand.Stop: s.stop, chatcommand.Compact: s.compact,
	}[c.Name]
	if !ok { // of a build that knows another list: what it pushed still gets an answer
		return "This agent does not know the command /" + c.Name + ".", nil
	}
	return do(ctx, c)
}

// compact digests the conversation of a command.
func (s commands) compact(ctx context.Context, c turn.Command) (string, error) {
	out, err := s.digest(ctx, c.Trusted, &runnerpb.CompactMemoryRequest{AgentId: c.AgentID, ThreadId: c.ThreadID})
	switch {
	case err != nil:
		return "", err
	case out.Failed != "":
		return "The memory was not digested: " + out.Failed, nil
	case out.Messages == 0:
		return "There is nothing new to digest.", nil
	}
	return fmt.Sprintf("Digested %s into the memory.", count(out.Messages, "message")), nil
}

// stop says what the command ended: the lane has done it before the turn of the command. What of it ended in the time
// since the command was stored, the fates say; so the answer is the same after a crash.
func (s commands) stop(ctx context.Context, c turn.Command) (string, error) {
	var runs, waiting int
	own, err := registrycall.Call(ctx, c.Trusted, func(ctx context.Context) (*registrypb.GetTurnResponse, error) {
		return s.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: c.AgentID, InboxId: c.InboxID})
	})
	if err != nil {
		return "", err
	}
	if c.FromOwner { // also of runs that had ended
		s.processes.End(ctx, c.AgentID, c.ThreadID, "")
	}
	page, err := registrycall.Call(ctx, c.Trusted, func(ctx context.Context) (*registrypb.ListTurnsResponse, error) {
		return s.turns.ListTurns(ctx, &registrypb.ListTurnsRequest{AgentId: c.AgentID, PageToken: strconv.FormatInt(c.InboxID, 10), PageSize: maxStopped})
	})
	if err != nil {
		return "", err
	}
	since, peer := own.GetTurn().GetQueuedAt().AsTime(), source.PeerOf(c.Source)
	for _, t := range page.GetTurns() {
		switch {
		case t.GetFate() != registrypb.Fate_FATE_ABORTED, t.GetFinishedAt().AsTime().Before(since), !c.FromOwner && source.PeerOf(t.GetSource()) != peer:
		case t.GetThreadId() == c.ThreadID:
			runs++
			s.processes.End(ctx, c.AgentID, c.ThreadID, t.GetKey())
		case t.GetThreadId() == "": // withdrawn before its turn began
			waiting++
		}
	}
	var parts []string
	if runs > 0 {
		parts = append(parts, count(runs, "run"))
	}
	if waiting > 0 {
		parts = append(parts, count(waiting, "waiting message"))
	}
	if len(parts) == 0 {
		return "Nothing is running.", nil
	}
	return "Stopped " + strings.Join(parts, " and ") + ".", nil
}

// maxStopped is how many events before a cut are read: little more can be in hand.
const maxStopped = 1000

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
