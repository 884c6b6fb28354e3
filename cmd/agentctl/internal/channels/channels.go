// Package channels implements the command `agentctl channels`: it adds accounts of chat platforms
// and webhooks to the settings of the home, shows their states, and signs messages for them.
//
// The registry keeps the settings; the gateway runs the accounts.
package channels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/reference"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	gateway "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxBody bounds what is read to be signed, in bytes; the gateway takes as much.
const maxBody = 1 << 20

// Command answers the command channels.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "channels",
		Short: "Add accounts by which people and programs reach agents",
		Long: `Add accounts by which people and programs reach agents, and show their states. Which agent
gets a message is decided by 'agentctl bindings'.`,
		Example: `  agentctl channels add telegram tg --token env:TG_TOKEN
  agentctl channels status
  agentctl channels restart tg`,
	}, addCommand(e), listCommand(e), statusCommand(e), testCommand(e), restartCommand(e), removeCommand(e), signCommand(e))
}

// account is an entry of the settings for programs.
type account struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Enabled   bool     `json:"enabled"`
	DM        string   `json:"dm"`
	AllowFrom []string `json:"allow_from,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	URL       string   `json:"url,omitempty"`
	Secret    string   `json:"secret,omitempty"`
	Token     string   `json:"token,omitempty"`
	AppToken  string   `json:"app_token,omitempty"`
	API       string   `json:"api,omitempty"`
	Plugin    string   `json:"plugin,omitempty"`
}

func of(a layer.Account) account {
	return account{a.Name, a.Type, a.Enabled, a.DM, a.AllowFrom, a.Groups.Allow, a.URL, a.Secret, a.Token, a.AppToken, a.API, a.Plugin}
}

// accounts are those of the settings, by name.
func accounts(ctx context.Context, e *command.Env) ([]layer.Account, error) {
	s, err := e.HomeSettings(ctx)
	slices.SortFunc(s.Accounts, func(a, b layer.Account) int { return cmp.Compare(a.Name, b.Name) })
	return s.Accounts, err
}

// find returns one of the accounts.
func find(list []layer.Account, name string) (layer.Account, error) {
	if i := slices.IndexFunc(list, func(a layer.Account) bool { return a.Name == name }); i >= 0 {
		return list[i], nil
	}
	return layer.Account{}, fault.New(codes.NotFound, fault.ChannelNotFound, fmt.Sprintf("there is no channel account %.80q", name), "'agentctl channels list' lists them")
}

func addCommand(e *command.Env) *cobra.Command {
	var a Addition
	c := &cobra.Command{
		Use:   "add TYPE ACCOUNT",
		Short: "Add an account",
		Long: `Add an account to the settings of the home. A chat platform wants --token; docs/channels.md
says where to get one. The type webhook receives what programs post to the address that is
printed, and posts replies to --url where that is given; without --secret only programs of
this machine may post. The type plugin wants --plugin, the socket of a program that connects a
platform. --dm says who may write directly: pairing gives a stranger a code that
an owner approves, allowlist takes those of --allow-from, open everybody, off none but owners.
--group adds a group by its id; * is any.`,
		Example: `  agentctl channels add telegram tg --token env:TG_TOKEN
  agentctl channels add webhook shop --secret env:SHOP_SECRET --dm open
  agentctl channels add webhook shop --secret file:/etc/shop.key --allow-from c7 --url https://shop.example/replies
  agentctl channels add plugin irc --plugin unix:/run/theclaw/irc.sock`,
		RunE: func(c *cobra.Command, args []string) error {
			a.Type, a.Name = args[0], args[1]
			if _, ok := catalog.Find(a.Type); !ok {
				return command.Usage(c, "%q is not a type that can be added: there are %s", a.Type, strings.Join(Types(), ", "))
			}
			s, err := a.Add(c.Context(), e)
			if err != nil {
				return err
			}
			return e.Show(s, a.Name, "Channel '%s' (%s) added: %s", a.Name, a.Type, s.next(a.DM))
		},
	}
	f := c.Flags()
	command.TextFlag(f, &a.Token, "token", command.Reference, "token of the platform: env:NAME, a variable of agentd, or file:PATH")
	command.TextFlag(f, &a.AppToken, "app-token", command.Reference, "second token, of a platform that has two")
	command.TextFlag(f, &a.API, "api", command.URL, "address of the platform, for a server of its protocol elsewhere")
	command.TextFlag(f, &a.Plugin, "plugin", command.Address, "socket of the program that connects the platform: unix:PATH")
	command.TextFlag(f, &a.Secret, "secret", command.Reference, "key of signatures: env:NAME, a variable of agentd, or file:PATH")
	command.TextFlag(f, &a.URL, "url", command.URL, "where replies are posted to")
	command.TextFlag(f, &a.DM, "dm", command.DirectPolicy, "who may write: pairing, allowlist, open or off (default: pairing; of a webhook allowlist)")
	command.TextsFlag(f, &a.AllowFrom, "allow-from", command.PlatformID, "peer who may write; may be repeated")
	command.TextsFlag(f, &a.Groups, "group", command.PlatformID, "group that may write; may be repeated")
	f.BoolVar(&a.AllowPrivate, "allow-private", false, "allow http:// and addresses that are not public in --url")
	return c
}

// Addition is an account to be added.
type Addition struct {
	Name string
	channel.Definition
	DM                string // empty: pairing; of a type that is posted to, allowlist
	AllowFrom, Groups []string
}

// flow is the account in YAML.
func (a Addition) flow() string {
	parts := []string{"type: " + config.Quote(a.Type), "dm: " + config.Quote(a.DM)}
	for _, p := range [][2]string{{"token", a.Token}, {"app_token", a.AppToken}, {"api", a.API}, {"secret", a.Secret}, {"url", a.URL}, {"plugin", a.Plugin}} {
		if p[1] != "" {
			parts = append(parts, p[0]+": "+config.Quote(p[1]))
		}
	}
	if a.AllowPrivate {
		parts = append(parts, "allow_private: true")
	}
	if len(a.AllowFrom) > 0 {
		parts = append(parts, "allow_from: "+config.FlowList(a.AllowFrom))
	}
	if len(a.Groups) > 0 {
		parts = append(parts, "groups: {allow: "+config.FlowList(a.Groups)+"}")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Types are the names of those that can be added.
func Types() (names []string) {
	for _, t := range catalog.Types {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// Platforms are the names of the types that connect with a token.
func Platforms() []string {
	return slices.DeleteFunc(Types(), func(name string) bool {
		t, _ := catalog.Find(name)
		return !Connects(name) || !slices.Contains(t.Keys, "token")
	})
}

// Add writes the account into the settings, and waits until the gateway has decided its state.
func (a *Addition) Add(ctx context.Context, e *command.Env) (Status, error) {
	if a.DM == "" {
		if a.DM = "pairing"; !Connects(a.Type) { // a program is sent no code
			a.DM = "allowlist"
		}
	}
	list, err := accounts(ctx, e)
	if err != nil {
		return Status{}, err
	}
	if _, err := find(list, a.Name); err == nil {
		return Status{}, fault.New(codes.AlreadyExists, fault.ChannelExists, fmt.Sprintf("there is an account %s already", a.Name), "choose another name, or remove it with 'agentctl channels remove "+a.Name+"'")
	}
	if _, err := e.Homes().SetHomeValue(ctx, &registry.SetHomeValueRequest{Path: []string{"channels", a.Name}, Value: a.flow()}); err != nil {
		return Status{}, err
	}
	s, err := Started(ctx, e, a.Name)
	if err != nil {
		e.Note("%s is in the settings", a.Name)
	}
	return s, err
}

// Connects reports whether an account of a type connects to its platform.
func Connects(kind string) bool {
	t, ok := catalog.Find(kind)
	return ok && t.Receive != nil
}

// next says what an account does now and what to do next.
func (s Status) next(dm string) string {
	switch {
	case s.Address != "":
		return s.State + " - POST to " + s.Address
	case s.State == Up && dm == "pairing":
		return s.Bot() + ". Write to it, then run: agentctl pair approve CODE --owner"
	case s.State == Up:
		return s.Bot() + ". Write to it"
	case s.State == Standby:
		return "another gateway receives: " + screen.Line(s.What)
	}
	return s.State + " - " + screen.Line(cmp.Or(s.What, "'agentctl channels status' shows more"))
}

// Up is the state of an account that receives, Standby that of one for which another gateway does, and Conflict
// that of one whose bot another program uses.
const (
	Up       = "up"
	Standby  = "standby"
	Conflict = "conflict"
)

// Bot is the name at its platform of an account that receives.
func (s Status) Bot() string {
	bot, _, _ := strings.Cut(screen.Line(s.What), ", lease ")
	return bot
}

// Started asks the gateway for an account, of which it knows within a moment, until its state is
// decided.
func Started(ctx context.Context, e *command.Env, name string) (Status, error) {
	for range 100 { // registries that share a database see a change within two seconds
		r, err := e.Gateway().ListChannels(ctx, &gateway.ListChannelsRequest{})
		if err != nil {
			return Status{}, err
		}
		for _, ch := range r.GetChannels() {
			if s := statusOf(ch); s.Name == name && s.State != "starting" {
				return s, nil
			}
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return Status{}, err
		}
	}
	return Status{State: "starting", Name: name}, nil
}

func listCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the accounts of the settings",
		Example: `  agentctl channels list
  agentctl channels list --json | jq -r '.[].name'`,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := accounts(c.Context(), e)
			if err != nil {
				return err
			}
			out := []account{}
			for _, a := range list {
				out = append(out, of(a))
			}
			t := screen.NewTable(e, "name", "type", "dm", "allow from", "groups", "secrets", "address").Cut("allow from").Drop("secrets", "groups").
				None("no accounts: 'agentctl channels add TYPE NAME' adds one")
			return screen.List(t, out, func(a account) []any {
				dm := a.DM
				if !a.Enabled {
					dm = "disabled"
				}
				secrets := strings.Join(strings.Fields(strings.Join([]string{a.Token, a.AppToken, a.Secret}, " ")), " ")
				return []any{a.Name, a.Type, dm, cmp.Or(strings.Join(a.AllowFrom, " "), "-"), cmp.Or(strings.Join(a.Groups, " "), "-"), cmp.Or(secrets, "-"), cmp.Or(a.URL, a.API, a.Plugin, "-")}
			})
		},
	}
}

// Status is the state of an account for programs.
type Status struct {
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	In      int64     `json:"in"`
	Out     *int64    `json:"out,omitempty"` // unset: no deliverer answers
	Lag     *float64  `json:"lag_seconds,omitempty"`
	What    string    `json:"what,omitempty"`
	Address string    `json:"address,omitempty"`
}

// Statuses are the accounts at the gateway, with what the deliverer sent by them.
func Statuses(ctx context.Context, e *command.Env) ([]Status, error) {
	r, err := e.Gateway().ListChannels(ctx, &gateway.ListChannelsRequest{})
	if err != nil {
		return nil, err
	}
	out := []Status{}
	for _, ch := range r.GetChannels() {
		out = append(out, statusOf(ch))
	}
	if len(out) == 0 {
		return out, nil
	}
	d, err := e.DelivererService().GetDelivererInfo(ctx, &deliverer.GetDelivererInfoRequest{})
	if err != nil { // the states are what was asked for
		return out, ctx.Err()
	}
	for i, ch := range r.GetChannels() {
		n := ch.GetNotices()
		for _, a := range d.GetAccounts() {
			if a.GetAccount() == ch.GetName() {
				n += a.GetSent()
			}
		}
		out[i].Out = &n
	}
	return out, nil
}

// Sent is how many messages were sent by the account, for a table.
func (s Status) Sent() string {
	if s.Out == nil {
		return "-"
	}
	return strconv.FormatInt(*s.Out, 10)
}

// Late is the lag of the last message of the account, for a table.
func (s Status) Late() string {
	if s.Lag == nil {
		return "-"
	}
	return fmt.Sprintf("%.0fs", *s.Lag)
}

func statusOf(c *gateway.Channel) Status {
	s := Status{
		Name: c.GetName(), Type: c.GetType(), State: command.Word(c.GetState(), "CHANNEL_STATE_", "unknown"), Since: c.GetSince().AsTime(),
		In: c.GetIn(), What: c.GetWhat(), Address: c.GetAddress(),
	}
	if c.GetLag() != nil {
		lag := c.GetLag().AsDuration().Seconds()
		s.Lag = &lag
	}
	return s
}

func statusCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the states of the accounts",
		Long: `Show the states of the accounts at the gateway: since when, how many messages they received,
how many were sent by them (replies and notices, counted since the services started), how long
the last one took from its sending, and what to do where one does not receive. Of several
gateways one receives for an account of a chat platform: the one that has its lease. At the
others it is standby.`,
		Example: `  agentctl channels status
  agentctl channels status --json | jq -r '.[] | select(.state != "up" and .state != "standby") | .what'`,
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := Statuses(c.Context(), e)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "name", "type", "state", "since", "in", "out", "lag", "what", "address").Wide("address").Cut("what").Drop("lag", "type").
				None("no accounts: 'agentctl channels add TYPE NAME' adds one")
			now := time.Now()
			return screen.List(t, out, func(s Status) []any {
				return []any{s.Name, s.Type, s.State, screen.Age(now, s.Since), s.In, s.Sent(), s.Late(), s.What, cmp.Or(s.Address, "-")}
			})
		},
	}
}

func restartCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "restart CHANNEL",
		Short:   "Start an account again",
		Long:    "Start an account again, after its secret was corrected. Messages wait at their sender meanwhile.",
		Example: "  agentctl channels restart shop",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Gateway().RestartChannel(c.Context(), &gateway.RestartChannelRequest{Name: args[0]})
			if err != nil {
				return err
			}
			s := statusOf(r.GetChannel())
			what := ""
			if s.What != "" {
				what = " - " + screen.Line(s.What)
			}
			return e.Show(s, s.Name, "%s: %s%s", s.Name, s.State, what)
		},
	}
}

func testCommand(e *command.Env) *cobra.Command {
	var to, text string
	c := &cobra.Command{
		Use:   "test CHANNEL",
		Short: "Send a notice over an account",
		Long: `Send a notice to a person over an account, to see that it reaches the platform and the person.
It is no message of an agent, and nothing is stored.`,
		Example: "  agentctl channels test tg --to 1207",
		RunE: func(c *cobra.Command, args []string) error {
			if to == "" {
				return command.Usage(c, "--to is missing: the id of a person at the platform")
			}
			r, err := e.Gateway().TestChannel(c.Context(), &gateway.TestChannelRequest{Name: args[0], To: to, Text: text})
			if err != nil {
				return err
			}
			return e.Show(struct {
				Name       string `json:"name"`
				To         string `json:"to"`
				ProviderID string `json:"provider_id"`
			}{args[0], to, r.GetProviderId()}, r.GetProviderId(), "%s: sent to %s as %s", args[0], to, cmp.Or(r.GetProviderId(), "-"))
		},
	}
	command.TextFlag(c.Flags(), &to, "to", command.PlatformID, "id of the person at the platform")
	command.TextFlag(c.Flags(), &text, "text", command.Message, "text of the notice (default: This is a test.)")
	return c
}

func removeCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "remove CHANNEL",
		Short:   "Remove an account",
		Long:    "Remove an account from the settings of the home. Its conversations stay.",
		Example: "  agentctl channels remove shop",
		RunE: func(c *cobra.Command, args []string) error {
			list, err := accounts(c.Context(), e)
			if err == nil {
				_, err = find(list, args[0])
			}
			if err != nil {
				return err
			}
			r, err := e.Homes().SetHomeValue(c.Context(), &registry.SetHomeValueRequest{Path: []string{"channels", args[0]}})
			if err != nil {
				return err
			}
			return e.Show(struct {
				Name    string `json:"name"`
				Removed bool   `json:"removed"`
				Version string `json:"version"`
			}{args[0], r.GetExisted(), r.GetVersion()}, args[0], "Channel '%s' removed; its conversations stay", args[0])
		},
	}
}

func signCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "sign CHANNEL",
		Short: "Print the signature of a body on standard input",
		Long: `Print the header ` + webhook.SignatureHeader + ` for a body on standard input, as a program signs what
it posts to the account: t=SECONDS,sha256=HMAC, over the seconds, a dot and the body. The
secret is read here: an env:NAME must be set in this shell, too.`,
		Example: `  printf '{"id":"o-1","from":{"id":"c7"},"text":"hello"}' | agentctl channels sign shop`,
		RunE: func(c *cobra.Command, args []string) error {
			list, err := accounts(c.Context(), e)
			if err != nil {
				return err
			}
			a, err := find(list, args[0])
			if err != nil {
				return err
			}
			if a.Secret == "" {
				return fault.New(codes.FailedPrecondition, fault.ChannelSignature, a.Name+" has no secret, and takes no signatures", "set channels."+a.Name+".secret")
			}
			home, err := e.Home()
			if err != nil {
				return err
			}
			getenv, err := e.Secrets()
			if err != nil {
				return err
			}
			key, err := reference.Read(home.Path(), getenv, a.Secret)
			if err != nil {
				return fault.New(codes.FailedPrecondition, fault.ChannelAuth, err.Error(), "set it in this shell or in .env of the home, as it is set for agentd")
			}
			body, err := io.ReadAll(io.LimitReader(e.In, maxBody+1))
			if err == nil && len(body) > maxBody {
				err = errors.New("it is longer than 1 MiB")
			}
			if err != nil {
				return fault.Usage("the body cannot be read: "+err.Error(), "give it on standard input")
			}
			signature := webhook.Sign(key, time.Now(), body)
			return e.Show(struct {
				Signature string `json:"signature"`
			}{signature}, signature, "%s", signature)
		},
	}
}
