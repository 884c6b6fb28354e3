package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/channels"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// chatAccount is the account of a chat platform that setup adds; without a type there is none.
type chatAccount struct {
	kind, tokenVariable, appTokenVariable, api, owner string
}

// flag is one of the flags of an account that is given; empty: none is.
func (c chatAccount) flag() string {
	for _, f := range []struct{ name, value string }{{"--token-env", c.tokenVariable}, {"--app-token-env", c.appTokenVariable}, {"--api", c.api}, {"--owner", c.owner}} {
		if f.value != "" {
			return f.name
		}
	}
	return ""
}

// connect adds an account with the name of its type and makes a person an owner. What is there
// already stays as it is.
func connect(ctx context.Context, e *command.Env, o *options, home string) error {
	settings, err := e.HomeSettings(ctx)
	if err != nil {
		return err
	}
	c := &o.chat
	if c.kind == "" && !o.yes && !slices.ContainsFunc(settings.Accounts, func(a layer.Account) bool { return channels.Connects(a.Type) }) {
		for c.kind == "" {
			answer, err := screen.Ask(ctx, e, fmt.Sprintf("A chat platform to write from (%s), Enter to leave it out: ", strings.Join(channels.Platforms(), ", ")))
			if err != nil || answer == "" {
				return err
			}
			if slices.Contains(channels.Platforms(), answer) {
				c.kind = answer
			} else {
				e.Note("%.80q is none of them", answer)
			}
		}
	}
	if c.kind == "" {
		return nil
	}
	if c.owner != "" {
		if err := own(ctx, e, settings.Owners, c.kind+":"+c.owner); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(settings.Accounts, func(a layer.Account) bool { return a.Name == c.kind }) {
		e.Note("the account %s is there: it stays as it is", c.kind)
		s, err := channels.Started(ctx, e, c.kind)
		if err == nil {
			e.Note("%s: %s - %s", c.kind, s.State, screen.Line(s.What))
		}
		return err
	}
	a := channels.Addition{Name: c.kind, Definition: channel.Definition{Type: c.kind, API: c.api}}
	if a.Token, err = token(ctx, e, o, home, "token", c.tokenVariable); err != nil {
		return err
	}
	if c.appTokenVariable != "" || c.kind == "slack" {
		if a.AppToken, err = token(ctx, e, o, home, "app-token", c.appTokenVariable); err != nil {
			return err
		}
	}
	s, err := a.Add(ctx, e)
	if err != nil {
		return err
	}
	switch s.State {
	case channels.Up, channels.Standby:
	case channels.Conflict:
		return fault.New(codes.Aborted, fault.ChannelConflict, fmt.Sprintf("the account %s is in conflict: %s", c.kind, screen.Line(s.What)), "stop it, or create a new token; 'agentctl channels status' shows when the account receives")
	default:
		return fault.New(codes.FailedPrecondition, fault.ChannelAuth, fmt.Sprintf("the account %s is %s: %s", c.kind, s.State, screen.Line(s.What)), "correct the token, 'agentctl channels remove "+c.kind+"', and run setup again")
	}
	if s.State == channels.Up {
		e.Note("%s is up as %s", c.kind, s.Bot())
	} else {
		e.Note("another gateway receives for %s: %s", c.kind, screen.Line(s.What))
	}
	switch {
	case c.owner != "":
		e.Note("%s may write to it now, as an owner", c.owner)
	case o.yes:
		e.Note("write to it; it answers with a code: agentctl pair approve CODE --owner")
	default:
		return pair(ctx, e)
	}
	return nil
}

// own adds an owner to the settings.
func own(ctx context.Context, e *command.Env, owners []string, owner string) error {
	if slices.Contains(owners, owner) {
		return nil
	}
	_, err := e.Homes().SetHomeValue(ctx, &registry.SetHomeValueRequest{Path: []string{"owners"}, Value: config.FlowList(append(slices.Clone(owners), owner))})
	return err
}

// token reads a token from the environment, or asks for it, and stores it in a file of the home. The reference
// is relative to the home, which may be moved or restored elsewhere.
func token(ctx context.Context, e *command.Env, o *options, home, what, variable string) (ref string, err error) {
	text := ""
	switch {
	case variable != "":
		if text = e.Getenv(variable); strings.TrimSpace(text) == "" {
			return "", fault.New(codes.FailedPrecondition, fault.ChannelAuth, "the environment variable "+variable+" is not set", "set it to the token, and export it")
		}
	case o.yes:
		return "", fault.Usage("the token is missing", "give --"+what+"-env NAME")
	default:
		if text, err = screen.Hidden(ctx, e, fmt.Sprintf("The %s of %s (not shown): ", strings.ReplaceAll(what, "-", " "), o.chat.kind)); err != nil {
			return "", err
		}
	}
	if text = strings.TrimSpace(text); text == "" || !isSecret(text) {
		return "", fault.New(codes.FailedPrecondition, fault.ChannelAuth, "that is not a token: it is empty, has blanks or line breaks, or is longer than 8 KiB", "copy the token alone")
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := o.chat.kind + "." + what
	return "file:" + name, safefile.Replace(root, name, []byte(text+"\n"))
}

// pair asks for the code that the bot has answered with, and makes its person an owner.
func pair(ctx context.Context, e *command.Env) error {
	e.Note("Write to it now. It answers with a code.")
	for {
		code, err := screen.Ask(ctx, e, "Code, Enter to leave it out: ")
		if err != nil || code == "" {
			return err
		}
		r, err := e.Channels().ResolvePairing(ctx, &registry.ResolvePairingRequest{Code: code, Decision: registry.PairingDecision_PAIRING_DECISION_APPROVE, Owner: true})
		if err == nil {
			e.Note("%s may write to it, as an owner", screen.Line(r.GetPairing().GetPeerName()))
			return nil
		}
		if !fault.Is(err, fault.PairingNotFound) {
			return err
		}
		e.Note("%s", fault.Line(err))
	}
}
