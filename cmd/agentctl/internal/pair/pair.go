// Package pair implements the command `agentctl pair`: it lists who asked to write to accounts of
// chat platforms, and decides about them.
//
// The registry makes the codes and keeps the decisions; the gateway sends the codes.
package pair

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Command answers the command pair.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "pair",
		Short: "Decide who may write to accounts",
		Long: `Decide who may write to accounts whose dm is pairing. A stranger who writes to one is sent a
code; until it is approved, nothing that the person writes is stored.`,
		Example: `  agentctl pair list
  agentctl pair approve QX4T7MHD
  agentctl pair block tg:1207`,
	}, listCommand(e), approveCommand(e),
		decide(e, registry.PairingDecision_PAIRING_DECISION_DENY, "deny", "Refuse a person, who may ask again",
			"Refuse a person. The next message of the person asks again, with another code.",
			"was refused at %s; another message asks again"),
		decide(e, registry.PairingDecision_PAIRING_DECISION_BLOCK, "block", "Refuse a person without an answer",
			"Refuse a person without an answer, in direct messages and in groups, until 'agentctl pair revoke'.",
			"is blocked at %s"),
		decide(e, registry.PairingDecision_PAIRING_DECISION_REVOKE, "revoke", "Forget what was decided about a person",
			"Forget what was decided about a person, who is a stranger then: neither approved nor an owner nor blocked.",
			"is a stranger to %s again"),
	)
}

// pairing is one of the list for programs.
type pairing struct {
	Account  string     `json:"account"`
	Type     string     `json:"type"`
	PeerID   string     `json:"peer_id"`
	PeerName string     `json:"peer_name"`
	State    string     `json:"state"`
	Owner    bool       `json:"owner"`
	By       string     `json:"by"`
	At       time.Time  `json:"at"`
	Expires  *time.Time `json:"expires,omitempty"` // of the code of a pending one
	Messages int64      `json:"messages"`          // that were not stored
	Notice   string     `json:"notice,omitempty"`  // that the person was approved: waiting, sent or failed; none: no notice
}

func of(p *registry.Pairing) pairing {
	out := pairing{
		p.GetAccount(), p.GetType(), p.GetPeerId(), p.GetPeerName(), command.Word(p.GetState(), "PAIRING_STATE_", "unspecified"), p.GetOwner(), p.GetBy(), p.GetAt().AsTime(), nil, p.GetMessages(),
		command.Word(p.GetNotice(), "PAIRING_NOTICE_", ""),
	}
	if p.GetExpires() != nil {
		at := p.GetExpires().AsTime()
		out.Expires = &at
	}
	return out
}

// person names the person as 'agentctl pair' takes it.
func (p pairing) person() string { return p.Account + ":" + p.PeerID }

// String is the person for people.
func (p pairing) String() string {
	address := p.Type + ":" + p.PeerID
	if p.PeerName == "" {
		return address
	}
	return p.PeerName + " (" + address + ")"
}

func listCommand(e *command.Env) *cobra.Command {
	var account string
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List who asked and who may write",
		Long: `List who asked and was not answered yet, who may write and who is blocked. PERSON is what
the other commands take instead of a code, which is not stored. MESSAGES were not stored since
the person asked.`,
		Example: `  agentctl pair list
  agentctl pair list --account tg --all --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := e.Channels().ListPairings(c.Context(), &registry.ListPairingsRequest{Account: account})
			if err != nil {
				return err
			}
			list := []pairing{}
			for _, p := range r.GetPairings() {
				if all || p.GetState() != registry.PairingState_PAIRING_STATE_DENIED {
					list = append(list, of(p))
				}
			}
			now := time.Now()
			t := screen.NewTable(e, "person", "name", "state", "channel", "age", "messages", "by").Cut("person").Drop("by", "channel").
				None("no person has asked to write to an account whose dm is pairing")
			return screen.List(t, list, func(p pairing) []any {
				state := p.State
				if p.Owner {
					state = "owner"
				}
				return []any{p.person(), cmp.Or(p.PeerName, "-"), state, p.Type, screen.Age(now, p.At), p.Messages, cmp.Or(p.By, "-")}
			})
		},
	}
	command.TextFlag(c.Flags(), &account, "account", command.Channel, "only this account")
	c.Flags().BoolVar(&all, "all", false, "also who was refused in the last 7 days")
	return c
}

// request names the person of an operand.
func request(operand string, d registry.PairingDecision) *registry.ResolvePairingRequest {
	if account, peer, ok := strings.Cut(operand, ":"); ok {
		return &registry.ResolvePairingRequest{Account: account, PeerId: peer, Decision: d}
	}
	return &registry.ResolvePairingRequest{Code: operand, Decision: d}
}

func approveCommand(e *command.Env) *cobra.Command {
	var owner, share bool
	c := &cobra.Command{
		Use:   "approve PERSON",
		Short: "Let a person write",
		Long: `Let a person write: PERSON is the code that the person was sent, or ACCOUNT:PEER of
'agentctl pair list'. With --owner the person may also use every command and approve
requests, at all accounts of the type. A second person of an agent that has one conversation
for all is refused without --share-main, because each would read what the other writes.
The person is notified over the account; the command waits for that some seconds.`,
		Example: `  agentctl pair approve QX4T7MHD
  agentctl pair approve tg:1207 --owner`,
		RunE: func(c *cobra.Command, args []string) error {
			req := request(args[0], registry.PairingDecision_PAIRING_DECISION_APPROVE)
			req.Owner, req.ShareMain, req.Wait = owner, share, durationpb.New(noticeWait)
			r, err := e.Channels().ResolvePairing(c.Context(), req)
			if err != nil {
				return err
			}
			p := of(r.GetPairing())
			text := " may write to " + p.Account
			if p.Owner {
				text = " is an owner and may write to " + p.Account
			}
			if r.GetAlready() {
				text += " already"
			}
			text += " - " + notified(r.GetPairing().GetNotice(), p.Account)
			if p.Messages > 0 {
				text += "; earlier messages were not stored"
			}
			return e.Show(p, p.person(), "%s", screen.Line(p.String()+text))
		},
	}
	c.Flags().BoolVar(&owner, "owner", false, "also make the person an owner of the home")
	c.Flags().BoolVar(&share, "share-main", false, "accept that the person reads the conversation of others")
	return c
}

// noticeWait is how long the command waits for the notice to the person. A gateway that receives for the account sends it
// within that, as a rule.
const noticeWait = 5 * time.Second

// notified says what has become of the notice to a person who was approved.
func notified(n registry.PairingNotice, account string) string {
	switch n {
	case registry.PairingNotice_PAIRING_NOTICE_SENT:
		return "notified"
	case registry.PairingNotice_PAIRING_NOTICE_WAITING:
		return "not notified yet: that is done when " + account + " receives"
	case registry.PairingNotice_PAIRING_NOTICE_FAILED:
		return "not notified: the platform refused the notice"
	}
	return "not notified"
}

// decide is a command whose decision needs no more than the person; done says what holds then at an account.
func decide(e *command.Env, d registry.PairingDecision, name, short, long, done string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " PERSON",
		Short: short,
		Long: long + ` PERSON is the code that the person was
sent, or ACCOUNT:PEER of 'agentctl pair list'.`,
		Example: "  agentctl pair " + name + " tg:1207",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Channels().ResolvePairing(c.Context(), request(args[0], d))
			if err != nil {
				return err
			}
			p := of(r.GetPairing())
			return e.Show(p, p.person(), "%s "+done, screen.Line(p.String()), p.Account)
		},
	}
}
