package intake

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/markup"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// command is the chat command that an update is; nil: it is a message.
func (a *Account) command(u channel.Update) *registryv1.ChatCommand {
	if a.deps.live.settings().Off || u.EditOf != "" || u.Bot || u.Forwarded { // what another one wrote is no command of its sender
		return nil
	}
	c, ok := chatcommand.Parse(u.Text, chatcommand.Rules{
		Bot: a.bot, Mentions: []string{"@" + a.bot, "<@" + a.identity + ">", "<@!" + a.identity + ">"}, Bang: a.kind.KeepsSlash,
	})
	if !ok {
		return nil
	}
	return &registryv1.ChatCommand{Name: c.Name, Args: valid(c.Args)}
}

// answered reports whether the gateway itself answers a command.
func answered(c *registryv1.ChatCommand) bool { return c != nil && !chatcommand.Queued(c.GetName()) }

// answer carries a command out that the registry found permitted, and answers it.
func (a *Account) answer(u channel.Update, c *registryv1.ChatCommand, r *registryv1.AcceptedMessage) {
	ctx, cancel := context.WithTimeout(a.ctx, acceptLimit)
	defer cancel()
	args := strings.Fields(c.GetArgs())
	by, prefix := a.kind.Name+":"+u.PeerID, a.kind.Prefix()
	var text string
	var err error
	switch c.GetName() {
	case "help":
		text = help(a.deps.live.settings(), r.GetOwner(), prefix)
	case "start":
		text = fmt.Sprintf("This is the agent %s. Write a message; %shelp lists the commands.", r.GetAgentId(), prefix)
	case "whoami":
		text = fmt.Sprintf("You are %s (%s) at the account %s.\nAgent: %s\nSession: %s", channel.Clean(u.PeerName, 64), channel.Clean(by, 200), a.name, r.GetAgentId(), r.GetSessionKey())
		if r.GetOwner() {
			text += "\nYou are an owner."
		}
	case "status":
		text, err = a.status(ctx, r)
	case "usage":
		text, err = a.usage(ctx, r)
	case "approve", "deny":
		text, err = a.decide(ctx, c.GetName(), args, by)
	case "answer":
		text, err = a.answerQuestion(ctx, c.GetArgs(), by)
	case "pair":
		text, err = a.letIn(ctx, args, by)
	default: // one that this build knows and does not answer
		text = prefix + c.GetName() + " cannot be used here."
	}
	if err != nil {
		f := fault.From(err)
		text = f.What + "."
		if f.Fix != "" {
			text = f.What + " - " + f.Fix + "." // as agentctl writes it
		}
		if f.Code == codes.PermissionDenied { // a person in a group may press a button of another one again and again
			a.notifyRarely(u, f.Reason, text)
			return
		}
	}
	if a.ctx.Err() == nil {
		_ = a.notify(u, "command", text)
	}
}

// help lists the commands that a person may use, with what they begin with.
func help(set layer.Commands, owner bool, prefix string) string {
	var b strings.Builder
	b.WriteString("Commands:")
	for _, s := range chatcommand.List() {
		if may, _ := set.Permits(s, owner); may {
			fmt.Fprintf(&b, "\n%s%s - %s", prefix, strings.TrimSpace(s.Name+" "+s.Args), s.Help)
		}
	}
	return b.String()
}

// decide answers an approval for an owner.
func (a *Account) decide(ctx context.Context, name string, args []string, by string) (string, error) {
	decision := registryv1.ApprovalDecision_APPROVAL_DECISION_DENY
	usage := "Write " + a.kind.Prefix() + "deny ID."
	if name == "approve" {
		decision, usage = registryv1.ApprovalDecision_APPROVAL_DECISION_ONCE, "Write "+a.kind.Prefix()+"approve ID, and once or always."
		if len(args) == 2 && args[1] == "always" {
			decision = registryv1.ApprovalDecision_APPROVAL_DECISION_ALWAYS
		} else if len(args) == 2 && args[1] != "once" {
			return usage, nil
		}
	}
	if len(args) == 0 || len(args) > 2 || name == "deny" && len(args) != 1 {
		return usage, nil
	}
	r, err := a.deps.Approvals.ResolveApproval(ctx, &registryv1.ResolveApprovalRequest{ApprovalId: args[0], Decision: decision, By: by})
	if err != nil {
		return "", err
	}
	what := markup.Code(channel.Clean(r.GetApproval().GetCommand(), maxCommand))
	switch decision {
	case registryv1.ApprovalDecision_APPROVAL_DECISION_DENY:
		return "Denied: " + what, nil
	case registryv1.ApprovalDecision_APPROVAL_DECISION_ALWAYS:
		return fmt.Sprintf("Approved: %s\nFrom now on %s may run, as its allow list says:%s", what, r.GetApproval().GetAgentId(), entries(r.GetApproval())), nil
	}
	return "Approved once: " + what, nil
}

// answerQuestion answers a question of the agent for the person who was asked, or for an owner.
func (a *Account) answerQuestion(ctx context.Context, args, by string) (string, error) {
	id, answer, ok := strings.Cut(strings.TrimSpace(args), " ")
	if !ok {
		return "Write " + a.kind.Prefix() + "answer ID, and your answer.", nil
	}
	r, err := a.deps.Questions.AnswerQuestion(ctx, &registryv1.AnswerQuestionRequest{QuestionId: id, Answer: answer, By: by, Account: a.name})
	if err != nil {
		return "", err
	}
	return "Answered: " + markup.Code(channel.Clean(r.GetQuestion().GetAnswer(), maxCommand)), nil
}

// letIn approves the person of a code for an owner.
func (a *Account) letIn(ctx context.Context, args []string, by string) (string, error) {
	if len(args) != 1 {
		return "Write " + a.kind.Prefix() + "pair CODE, with the code that the person was sent.", nil
	}
	r, err := a.deps.Channels.ResolvePairing(ctx, &registryv1.ResolvePairingRequest{
		Code: args[0], Decision: registryv1.PairingDecision_PAIRING_DECISION_APPROVE, By: by, Wait: durationpb.New(acceptLimit / 2),
	})
	if err != nil {
		return "", err
	}
	p := r.GetPairing()
	may := "may write to"
	if r.GetAlready() {
		may = "was already approved and may write to"
	}
	text := fmt.Sprintf("%s (%s:%s) %s %s", channel.Clean(p.GetPeerName(), 64), p.GetType(), channel.Clean(p.GetPeerId(), 64), may, p.GetAccount())
	switch p.GetNotice() {
	case registryv1.PairingNotice_PAIRING_NOTICE_SENT:
		return text + " - notified.", nil
	case registryv1.PairingNotice_PAIRING_NOTICE_WAITING:
		return text + " - not notified yet.", nil
	}
	return text + " - not notified.", nil
}
