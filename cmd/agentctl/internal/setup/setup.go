// Package setup implements the command `agentctl setup`: everything between an unpacked
// archive and a conversation.
//
//	provider, key, model --one call in a temporary home--> refused: nothing was written
//	        |accepted
//	   NAME.key, providers.yaml --> service, or agentd as a child --> agent --> account --> chat
//
// It promises that the key is printed nowhere and is in no argument of a process, that an
// interruption leaves each file complete or as it was, and that a second run with the same
// answers changes nothing. Without a provider it goes on with the built-in stand-in and
// says what that is. The call that tests a key is the one of `agentctl providers test`.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/channels"
	"github.com/theclaw/agents/cmd/agentctl/internal/chat"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/agentctl/internal/service"
	"github.com/theclaw/agents/cmd/agentctl/internal/up"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/redact"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// keyVariable holds the key for the child that tests it.
	keyVariable = "THECLAW_SETUP_KEY"
	// maxKey is the longest key in bytes.
	maxKey = 8 << 10
	// patience is the least that the call of a test may take.
	patience = 30 * time.Second
	// tries is how often a person may enter a key.
	tries = 3
)

type options struct {
	yes, service, noChat, replace   bool
	provider, baseURL, model, agent string
	keyVariable, keyFile            string
	fromFile, fromVariable          bool
	chat                            chatAccount
}

// Command answers the command setup.
func Command(e *command.Env) *cobra.Command {
	o := options{agent: up.Admin}
	c := &cobra.Command{
		Use:     "setup",
		Aliases: []string{"onboard"},
		Short:   "Set up a model, the first agent and a chat platform",
		Long: `Ask for a model provider and its key, test the key with one small call, store it in the
home with mode 0600, create and start the first agent, offer to run the services in the
background, add an account of a chat platform, and start a chat. Without a key the built-in
offline stand-in answers.

With --yes nothing is asked: the flags give the answers, and what they leave out has its default.
Then each line of standard input is a message, as with 'agentctl up'. Nothing is written
before the key was accepted; a second run with the same answers changes nothing.`,
		Example: `  agentctl setup
  agentctl setup --yes --provider openai --key-env OPENAI_API_KEY
  agentctl setup --yes --provider anthropic --key-file key.txt --service
  agentctl setup --yes --channel telegram --token-env TG_TOKEN --owner 1207
  printf 'hello\n' | agentctl setup --yes`,
		RunE: func(c *cobra.Command, _ []string) error {
			o.fromFile, o.fromVariable = c.Flags().Changed("key-file"), c.Flags().Changed("key-env")
			if err := o.check(c, e); err != nil {
				return err
			}
			return run(c.Context(), e, o)
		},
	}
	f := c.Flags()
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "key-from-env" { // the earlier name
			name = "key-env"
		}
		return pflag.NormalizedName(name)
	})
	f.BoolVar(&o.yes, "yes", false, "ask nothing")
	command.TextFlag(f, &o.provider, "provider", command.Provider, "name of the model provider, such as openai or anthropic")
	command.TextFlag(f, &o.keyVariable, "key-env", command.Variable, "read the key from this environment variable, and store it")
	command.TextFlag(f, &o.keyFile, "key-file", command.File, "read the key from this file, and store it; - reads standard input")
	command.TextFlag(f, &o.baseURL, "base-url", command.URL, "address of the provider, for a server of your own")
	command.TextFlag(f, &o.model, "model", command.Model, "model (default: that of the provider)")
	command.TextFlag(f, &o.agent, "agent", command.NewAgent, "id of the first agent")
	command.TextFlag(f, &o.chat.kind, "channel", command.Platform, "chat platform to write from, such as telegram")
	command.TextFlag(f, &o.chat.tokenVariable, "token-env", command.Variable, "read its token from this environment variable, and store it")
	command.TextFlag(f, &o.chat.appTokenVariable, "app-token-env", command.Variable, "the same for the second token, of a platform that has two")
	command.TextFlag(f, &o.chat.api, "api", command.URL, "address of the platform, for a server of its protocol elsewhere")
	command.TextFlag(f, &o.chat.owner, "owner", command.PlatformID, "id at the platform of the person who owns the agents")
	f.BoolVar(&o.service, "service", false, "run the services in the background, with systemd")
	f.BoolVar(&o.noChat, "no-chat", false, "do not start a chat")
	f.BoolVar(&o.replace, "replace", false, "replace a providers.yaml that says something else")
	return c
}

func (o *options) check(c *cobra.Command, e *command.Env) error {
	in, _ := e.Terminal()
	switch {
	case e.Flags.Registry != "" || e.Flags.Runner != "" || e.Flags.Deliverer != "":
		return command.Usage(c, "setup works on the home of this machine, without --registry, --runner and --deliverer")
	case o.fromFile && o.fromVariable:
		return command.Usage(c, "--key-file and --key-env exclude each other")
	case o.provider == "" && (o.fromFile || o.fromVariable || o.baseURL != "" || o.model != ""):
		return command.Usage(c, "--provider is missing")
	case o.chat.kind == "" && o.chat.flag() != "":
		return command.Usage(c, "%s is of the account of --channel, which is missing", o.chat.flag())
	case o.chat.kind != "" && !slices.Contains(channels.Platforms(), o.chat.kind):
		return command.Usage(c, "--channel is one of %s; 'agentctl channels add' adds others", strings.Join(channels.Platforms(), ", "))
	case !o.yes && in == nil:
		return command.Usage(c, "setup asks questions, and standard input is not a terminal: give --yes and flags")
	}
	if o.provider != "" {
		if err := provider.CheckName(o.provider); err != nil {
			return err
		}
	}
	return nil
}

// chosen is the model that a run of setup uses.
type chosen struct {
	provider.Definition
	key     string
	keep    bool // what is configured already is used
	offline bool
}

func run(ctx context.Context, e *command.Env, o options) (err error) {
	home, err := e.Home()
	if err != nil {
		return err
	}
	c, err := choose(ctx, e, &o, home.Path())
	if err != nil {
		return err
	}
	changed := false
	if !c.keep && !c.offline {
		if changed, err = provider.Write(home.Path(), c.Definition, c.key, o.replace); err != nil {
			return err
		}
		e.Note("%s", map[bool]string{true: "stored in " + home.Path() + "/" + provider.FileName, false: home.Path() + "/" + provider.FileName + " is as it was"}[changed])
	}
	c.key = ""
	if !o.yes && !o.service && !service.Installed(e) && service.Possible(ctx, e) {
		if o.service, err = screen.Confirm(ctx, e, "Run the services in the background, also after you log out of the chat?"); err != nil {
			return err
		}
	}
	stop, stale, err := serve(ctx, e, o.service, changed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := up.Create(ctx, e, o.agent); err != nil {
		return err
	}
	e.Note("the agent %s is started", o.agent)
	if err := connect(ctx, e, &o, home.Path()); err != nil {
		return err
	}
	if c.keep {
		info, err := e.RunnerService().GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if c = configured(info); c.keep {
			reportModel(e, info)
		}
	}
	if stale {
		e.Note("agentd was running already and uses the earlier model until it is started again: end it, then 'agentctl up' or 'agentctl chat %s'", o.agent)
	}
	if c.offline {
		explainOffline(e)
	}
	if err := e.Print(struct {
		Home    string `json:"home"`
		Agent   string `json:"agent"`
		Model   string `json:"provider"`
		Changed bool   `json:"changed"`
		Service bool   `json:"service"`
	}{home.Path(), o.agent, c.Name, changed, o.service}, []string{o.agent}, func() error { return nil }); err != nil {
		return err
	}
	if o.noChat || stale {
		if !o.service {
			e.Note("next: 'agentctl up', or 'agentctl service install' and 'agentctl service start'")
		}
		return nil
	}
	return chat.Run(ctx, e, o.agent, message.Console, chat.Options{})
}

// serve brings the services up: as a service of the user, or as a child until the end.
// stale reports that services run which have not read the new settings.
func serve(ctx context.Context, e *command.Env, background, changed bool) (stop func() error, stale bool, err error) {
	none := func() error { return nil }
	if background {
		_, path, err := service.Install(ctx, e)
		if err != nil {
			return nil, false, err
		}
		e.Note("installed %s", path)
	}
	serving := false
	if changed || background {
		e.Impatient = true
		if serving, err = up.Serving(ctx, e); err != nil {
			return nil, false, err
		}
	}
	switch {
	case serving && service.Active(ctx, e):
		if changed {
			return none, false, service.Restart(ctx, e)
		}
		return none, false, nil
	case serving:
		return none, changed, nil
	case background:
		return none, false, service.Start(ctx, e)
	}
	stop, err = up.Serve(ctx, e)
	return stop, false, err
}

// choose finds the model: by flags, by what is configured, or by questions. What it
// answers was tested, unless it is kept or offline.
func choose(ctx context.Context, e *command.Env, o *options, home string) (chosen, error) {
	if o.provider == "" && provider.Exists(home) {
		e.Note("%s/%s is there: the model stays as it is", home, provider.FileName)
		return chosen{keep: true}, nil
	}
	if o.provider == "" && o.yes {
		return chosen{keep: true}, nil // the environment may have a provider; the services say so
	}
	info, known, err := ask(ctx, e)
	if err != nil {
		return chosen{}, err
	}
	if o.provider == "" {
		if c := configured(info); c.keep {
			return c, nil
		}
		if o.provider, err = askProvider(ctx, e, known); err != nil {
			return chosen{}, err
		}
		if o.provider == "" {
			return chosen{offline: true}, nil
		}
	} else if provider.Find(known, o.provider) == nil && o.baseURL == "" {
		return chosen{}, fault.Usage("provider "+o.provider+" is not known", "use one of "+provider.NamesOf(known)+"; or give --base-url, the address of a server of your own")
	}
	p := provider.Find(known, o.provider)
	d := provider.Definition{Name: cmp.Or(p.GetName(), o.provider), BaseURL: o.baseURL, Model: o.model}
	needsKey := p != nil && p.GetKey() != runner.KeyState_KEY_STATE_NONE
	if err := complete(ctx, e, o, &d, p); err != nil {
		return chosen{}, err
	}
	for try := 1; ; try++ {
		c := chosen{Definition: d}
		if c.key, err = readKey(ctx, e, o, needsKey); err != nil {
			return chosen{}, err
		}
		if c.key == "" && needsKey {
			e.Note("no key was given")
			return chosen{offline: true}, nil
		}
		e.Note("testing %s with one small call ...", d.Name)
		err := test(ctx, e, c)
		if err == nil {
			return c, nil
		}
		if o.yes || o.fromFile || o.fromVariable || try == tries || ctx.Err() != nil {
			return chosen{}, err
		}
		e.Note("%s", fault.Line(err))
	}
}

// configured is the choice of what the environment, pai or providers.yaml has, or offline.
func configured(info *runner.GetRunnerInfoResponse) chosen {
	p := info.GetProvider()
	return chosen{keep: p != "offline", offline: p == "offline", Definition: provider.Definition{Name: p}}
}

// reportModel says what answers, and where that comes from.
func reportModel(e *command.Env, info *runner.GetRunnerInfoResponse) {
	e.Note("model: %s (%s)", screen.Line(info.GetProvider()), screen.Line(info.GetProviderOrigin()))
	if strings.HasPrefix(info.GetProviderOrigin(), "environment") {
		e.Note("the key is read from the environment each time agentd starts; to store it, give --provider and --key-env")
	}
}

// complete gives the definition what the provider needs in addition to a key; p is what is known of
// it, nil: nothing is.
func complete(ctx context.Context, e *command.Env, o *options, d *provider.Definition, p *runner.Provider) (err error) {
	if p.GetBaseUrl() == "" && d.BaseURL == "" {
		if o.yes {
			return fault.Usage("the address of provider "+d.Name+" is not known", "give --base-url, such as http://127.0.0.1:11434/v1")
		}
		if d.BaseURL, err = screen.Ask(ctx, e, "Address of its API, such as http://127.0.0.1:11434/v1: "); err != nil {
			return err
		}
	}
	first := ""
	if len(p.GetModels()) > 0 {
		first = p.GetModels()[0].GetName()
	}
	if d.Model == "" && !o.yes {
		question := "Model: "
		if first != "" {
			question = "Model [" + screen.Line(first) + "]: "
		}
		if d.Model, err = screen.Ask(ctx, e, question); err != nil {
			return err
		}
	}
	if d.Model = cmp.Or(d.Model, first); d.Model == "" {
		return fault.Usage("provider "+d.Name+" has no default model", "give --model")
	}
	return nil
}

// readKey reads the key from where the flags say, or asks for it.
func readKey(ctx context.Context, e *command.Env, o *options, needed bool) (string, error) {
	key := ""
	switch {
	case o.fromVariable:
		if key = e.Getenv(o.keyVariable); strings.TrimSpace(key) == "" {
			return "", fault.New(codes.FailedPrecondition, fault.ModelAuth, "the environment variable "+o.keyVariable+" is not set", "set it to the key, and export it")
		}
	case o.fromFile:
		in := e.In
		if o.keyFile != "-" {
			f, err := os.Open(o.keyFile)
			if err != nil {
				return "", fault.Wrap(fault.New(codes.FailedPrecondition, fault.ModelAuth, "the key file cannot be opened: "+err.Error(), "check --key-file"), err)
			}
			defer f.Close()
			in = f
		}
		b, err := io.ReadAll(io.LimitReader(in, maxKey+1))
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		key = string(b)
	case o.yes && needed:
		return "", fault.Usage("the key is missing", "give --key-env or --key-file")
	case o.yes:
	default:
		question := "Key (not shown): "
		if !needed {
			question = "Key (not shown; empty if it needs none): "
		}
		var err error
		if key, err = screen.Hidden(ctx, e, question); err != nil {
			return "", err
		}
	}
	key = strings.TrimSpace(key)
	if !isSecret(key) {
		return "", fault.New(codes.FailedPrecondition, fault.ModelAuth, "that is not a key: it has blanks or line breaks, or is longer than 8 KiB", "copy the key alone")
	}
	return key, nil
}

// isSecret reports whether a text can be a key or a token.
func isSecret(s string) bool {
	return len(s) <= maxKey && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// trial runs agentd on an empty home of its own while do works: nothing that setup tries
// is written into the home of the user. If this process is killed, agentd ends, and a
// directory without any key is left.
func trial(ctx context.Context, e *command.Env, yaml []byte, key string, do func(context.Context, *command.Env) error) (err error) {
	dir, err := os.MkdirTemp("", "theclaw-setup-") // mode 0700
	if err != nil {
		return fmt.Errorf("make a temporary home: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if yaml != nil {
		if err := os.WriteFile(dir+"/"+provider.FileName, yaml, 0o600); err != nil {
			return fmt.Errorf("write a temporary home: %w", err)
		}
	}
	at := command.New(nil, io.Discard, io.Discard, e.Getenv, e.Version)
	at.Flags.Home, at.Flags.Timeout = dir, max(e.Flags.Timeout, patience)
	defer func() { err = errors.Join(err, at.Close()) }()
	var environment []string
	if key != "" {
		environment = []string{keyVariable + "=" + key}
	}
	stop, err := up.Serve(ctx, at, environment...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return do(ctx, at)
}

// ask answers what a new home would use, and the providers that are known.
func ask(ctx context.Context, e *command.Env) (info *runner.GetRunnerInfoResponse, known []*runner.Provider, err error) {
	err = trial(ctx, e, nil, "", func(ctx context.Context, at *command.Env) error {
		if info, err = at.RunnerService().GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{}, grpc.WaitForReady(true)); err != nil {
			return err
		}
		list, err := at.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{All: true})
		known = slices.DeleteFunc(list.GetProviders(), func(p *runner.Provider) bool { return p.GetDriver() != "openai" && p.GetDriver() != "anthropic" })
		return err
	})
	return info, known, err
}

// test makes one small call with the key.
func test(ctx context.Context, e *command.Env, c chosen) error {
	d := c.Definition
	if c.key != "" {
		d.KeyRef = "env:" + keyVariable
	}
	yaml, err := d.YAML()
	if err != nil {
		return err
	}
	err = trial(ctx, e, yaml, c.key, func(ctx context.Context, at *command.Env) error {
		r, err := at.RunnerService().TestProvider(ctx, &runner.TestProviderRequest{Name: d.Name, Model: d.Model}, grpc.WaitForReady(true))
		if err == nil {
			e.Note("%s answers as %s in %s", d.Name, screen.Line(r.GetModel()), r.GetLatency().AsDuration().Round(time.Millisecond))
		}
		return err
	})
	return clean(err, c.key)
}

// clean is an error without the key, whatever a provider has put into its answer.
func clean(err error, key string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	r, f := redact.New(key), fault.From(err)
	return fault.New(f.Code, f.Reason, r.Redact(f.What), r.Redact(cmp.Or(f.Fix, "check the provider, its address and the key")))
}

// explainOffline says what answers when there is no model.
func explainOffline(e *command.Env) {
	e.Note("no model is set up, so the built-in offline stand-in answers: it is no language model, needs no network and repeats " +
		"what you say; 'run: COMMAND' runs a command in the sandbox, 'help' lists the rest. Messages that come through a channel wait " +
		"until there is a model. For a real model run 'agentctl setup' again and give a key.")
}
