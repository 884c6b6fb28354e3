package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/envfile"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/rpc/balance"
)

var errHelp = errors.New("help was asked for")

// options are what the command line says.
type options struct {
	services  []service
	home      string
	profile   string
	registry  string   // target of the registry, or of several
	dsns      []string // of the registry's database, one at most; none: as theclaw.yaml says
	listen    string   // TCP address beside the socket; empty: none
	port      string   // of gateway.http; empty: as the settings and the environment say
	advertise string   // TCP address of a worker in its leases; empty: as it listens
	tls       string   // directory of certificates
	metrics   string
	// metricsRemote permits a metrics address that is not one of loopback.
	metricsRemote bool
	logFormat     string
	logLevel      slog.Level
	ttl           time.Duration
	grace         time.Duration
	remote        bool // runner and deliverer share no home with the registry
	vars          envfile.Vars
	getenv        func(string) string // the environment, then vars
}

const help = `agentd runs the services for the agents of one home.

Usage:
  agentd all|registry|runner|deliverer|gateway [flags]

Examples:
  agentd all                                  one process, no setup needed
  agentd all --metrics-listen 127.0.0.1:9464  with Prometheus metrics
  agentd gateway --port 19001                 the gateway alone, at another port
  agentd runner --name runner-2               an additional runner in the same home
  agentd all --listen 10.0.0.5:7443           also for workers on other machines, with mTLS
  agentd runner --registry dns:///10.0.0.5:7443
  agentd registry --dsn env:THECLAW_DSN --listen 10.0.0.5:7443   one of several registries over PostgreSQL
  agentd runner --registry dns:///10.0.0.5:7443,dns:///10.0.0.6:7443
`

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	o := options{getenv: getenv}
	f := flag.NewFlagSet("agentd", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var level, name string
	var showVersion bool
	o.define(f, &level, &name, &showVersion)
	usage := func() {
		printHelp(stderr, f)
	}
	for _, a := range args {
		if len(a) > longest || !utf8.ValidString(a) || strings.ContainsFunc(a, unicode.IsControl) {
			return o, fault.Usage(fmt.Sprintf("the argument %.40q is not printable text of at most %d bytes", a, longest), "see 'agentd --help'")
		}
	}
	words, err := parseMixed(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp), slices.Contains(words, "help"):
		usage()
		return o, errHelp
	case err != nil:
		return o, fault.Usage(flagText(err), "see 'agentd --help'")
	case showVersion:
		fmt.Fprintln(stderr, "agentd", versionText())
		return o, errHelp
	case len(words) != 1:
		return o, fault.Usage("exactly one of all, registry, runner, deliverer, gateway is needed", "for instance 'agentd all'")
	}
	if o.services = choose(words[0]); o.services == nil {
		return o, fault.Usage(fmt.Sprintf("there is no service %.40q", words[0]), "use all, registry, runner, deliverer or gateway")
	}
	if name != "" {
		if o.services, err = rename(o.services, name); err != nil {
			return o, err
		}
	}
	if o.logLevel, err = obs.ParseLevel(level); err != nil {
		return o, fault.Usage(fmt.Sprintf("--log-level %.40q is not a level", level), "use debug, info, warn or error")
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return o, fault.Usage(fmt.Sprintf("--log-format %.40q is not a format", o.logFormat), "use text or json")
	}
	if o.ttl < 100*time.Millisecond || o.ttl > 10*time.Minute {
		return o, fault.Usage("--lease-ttl is out of range", "use 100ms to 10m")
	}
	if err := o.find(getenv); err != nil {
		return o, err
	}
	if o.tls == "" {
		o.tls = layout.At(o.home).TLSDir()
	}
	if o.metricsRemote && o.metrics == "" {
		return o, fault.Usage("--metrics-remote goes with --metrics-listen", "for instance --metrics-listen 0.0.0.0:9464")
	}
	if o.port != "" && !slices.ContainsFunc(o.services, func(s service) bool { return s.name == "gateway" }) {
		return o, fault.Usage("--port is for the gateway", "for instance 'agentd gateway --port 19001'")
	}
	if o.registry != "" && o.services[0].name == "registry" {
		return o, fault.Usage("--registry is for a runner or a deliverer alone", "leave it out: the registry is in this process")
	}
	if o.registry != "" {
		if err := balance.CheckTarget(o.registry); err != nil {
			return o, err
		}
	}
	if _, port, err := net.SplitHostPort(o.listen); o.listen != "" && (err != nil || port == "") {
		return o, fault.Usage(fmt.Sprintf("--listen %.80q is not an address to listen on", o.listen), "use host:port, such as 127.0.0.1:7443")
	}
	if _, port, err := net.SplitHostPort(o.advertise); o.advertise != "" && (err != nil || port == "" || o.listen == "" || len(o.services) != 1) {
		return o, fault.Usage("--advertise is an address of a runner or a deliverer alone that has --listen", "use host:port, such as runner-2.example.org:7444")
	}
	o.remote = o.registry != "" && !strings.HasPrefix(o.registry, "unix:")
	return o, nil
}

// find finds the home and reads its file .env.
func (o *options) find(getenv func(string) string) (err error) {
	if o.home, err = layout.ChosenHome(o.home, o.profile, getenv); err != nil {
		return err
	}
	o.profile = cmp.Or(o.profile, getenv("THECLAW_PROFILE"))
	o.vars, err = envfile.Read(layout.At(o.home).EnvFile())
	o.getenv = o.vars.Getenv(getenv)
	return err
}

// define defines the flags of all services.
func (o *options) define(f *flag.FlagSet, level, name *string, showVersion *bool) {
	f.StringVar(&o.home, "home", "", "home `directory`; default $THECLAW_HOME, else ~/.theclaw")
	f.StringVar(&o.profile, "profile", "", "`name` of a profile, whose home is the home directory with -NAME added; default $THECLAW_PROFILE")
	f.StringVar(&o.registry, "registry", "", "`target` of the registry, or a comma-separated list of several; default its socket in the home")
	f.Func("dsn", "keep agents in PostgreSQL: a `reference` (env:NAME, file:PATH) or URL; default storage.dsns of theclaw.yaml", func(dsn string) error {
		if problem := layer.CheckDSN(dsn); problem != "" {
			return errors.New(problem)
		}
		o.dsns = append(o.dsns, dsn)
		return nil
	})
	f.StringVar(name, "name", "", "`name` of an additional runner or deliverer in a home, such as runner-2; also the name of its socket")
	f.StringVar(&o.listen, "listen", "", "TCP `address` to listen on in addition to the socket, with the certificates of --tls; for 'all', of the registry; default none")
	f.Func("port", "`number` of the port of the gateway on its HTTP address, in place of that of PORT, gateway.http or the profile; 0: a free one", func(port string) error {
		if !isPort(port) {
			return errors.New("use 0 to 65535")
		}
		o.port = port
		return nil
	})
	f.StringVar(&o.advertise, "advertise", "", "`address` of this runner or deliverer for others, if it differs from --listen; written into its leases")
	f.StringVar(&o.tls, "tls", "", "`directory` of certificates; default tls/ in the home")
	f.StringVar(&o.metrics, "metrics-listen", "", "loopback `address` for /metrics, /healthz and /readyz; default off")
	f.BoolVar(&o.metricsRemote, "metrics-remote", false, "permit a --metrics-listen address that is not loopback; it has no authentication, so limit who can reach it")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(level, "log-level", "info", "debug, info, warn or error")
	f.DurationVar(&o.ttl, "lease-ttl", lease.DefaultTTL, "lifetime of a lease without renewal")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "maximum time for running work to finish at shutdown")
	f.BoolVar(showVersion, "version", false, "print the version")
}

// longest is the limit of an argument in bytes: that of a path.
const longest = 4096

// flagText is an error of package flag in the words of this program: it has single dashes,
// and of a value that cannot be read it says "parse error".
func flagText(err error) string {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return fmt.Sprintf("unknown flag --%.40s", strings.TrimPrefix(name, "-"))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return "--" + strings.TrimPrefix(name, "-") + " has no value"
	}
	if m := badValue.FindStringSubmatch(text); m != nil {
		why := m[3]
		if why == "parse error" {
			why = "it is not a value of that type"
		}
		return fmt.Sprintf("--%s %.60s: %s", m[2], m[1], why)
	}
	return fmt.Sprintf("%.200q", text)
}

var badValue = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-(\S+): (.*)$`)

// rename gives the one worker of a process a name of its own, so that several can
// share a home. The name says what it is: its socket stands beside the others.
func rename(services []service, name string) ([]service, error) {
	if len(services) != 1 || services[0].name == "registry" {
		return nil, fault.Usage("--name is for a runner, a deliverer or a gateway alone", "for instance 'agentd runner --name runner-2'")
	}
	s := services[0]
	if !strings.HasPrefix(name, s.name+"-") {
		return nil, fault.Usage(fmt.Sprintf("--name %.40q is not a name for a %s", name, s.name), "use "+s.name+"-2 or the like")
	}
	s.name = name
	return []service{s}, nil
}

// parseMixed lets flags stand behind words.
func parseMixed(f *flag.FlagSet, args []string) ([]string, error) {
	var words []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) == 0 {
			return words, nil
		}
		words, args = append(words, args[0]), args[1:]
	}
}

func versionText() string {
	if version == "" {
		return "unknown"
	}
	return version
}
