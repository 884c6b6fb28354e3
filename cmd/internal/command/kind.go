package command

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/internal/thread"
)

// Kind is what a text on the command line means. Every argument and every flag that takes
// a text has one, so that the same mistake has the same error in every command.
type Kind struct {
	Noun  string             // what errors call it
	Most  int                // the longest in bytes
	Empty bool               // it may be empty
	Lines bool               // it may have several lines
	Any   bool               // what Check accepts is right: it need not name what exists
	Check func(string) error // its form; nil: every text has it
	Fix   string             // how to find a right one; empty: the help of the command
	offer Offer
}

const (
	nameMost  = 255      // of names, keys and words
	pathMost  = 4096     // of paths and URLs, as in Linux
	keyMost   = 16 << 10 // of session keys
	valueMost = 64 << 10 // of filters and settings
)

// The kinds of flags; those of arguments are in [operands].
var (
	Agent         = Kind{Noun: "agent id", Most: nameMost, Check: ID, offer: offerAgents}
	NewAgent      = Kind{Noun: "agent id", Most: nameMost, Check: ID, Any: true}
	Path          = Kind{Noun: "path", Most: pathMost, Any: true, Fix: "give the path of a file or directory"}
	File          = Kind{Noun: "file", Most: pathMost, Fix: "give the path of a file that exists"}
	Address       = Kind{Noun: "address", Most: pathMost, Any: true, Check: balance.CheckTarget, Fix: "give unix:///path or dns:///host:port"}
	URL           = Kind{Noun: "URL", Most: pathMost, Any: true, Check: checkURL, Fix: "give an address such as https://api.example.org/v1"}
	Provider      = Kind{Noun: "provider", Most: nameMost, Fix: "'agentctl providers list --all' shows the names", offer: offerProviders}
	Model         = Kind{Noun: "model", Most: nameMost, Any: true, Check: checkModel, Fix: "'agentctl providers list' shows the models", offer: offerModels}
	Filter        = Kind{Noun: "filter", Most: valueMost, Fix: "give a condition such as type = 'message' AND source = 'self'"}
	Conversation  = Kind{Noun: "name of a conversation", Most: nameMost, Any: true, Check: checkConversation, Fix: "use up to 63 small letters, digits, dots and underscores"}
	Peer          = Kind{Noun: "peer", Most: pathMost, Fix: "give the id of a peer, or the complete source address of one of its messages"}
	Source        = Kind{Noun: "source", Most: pathMost, Fix: "give an address such as external:telegram:main:dm:u1:u1"}
	EventType     = Kind{Noun: "type", Most: nameMost, Check: checkType, Fix: "use message or record"}
	Subtype       = Kind{Noun: "subtype", Most: nameMost, Any: true, Fix: "give one word"}
	Content       = Kind{Noun: "content", Most: thread.MaxEvent, Empty: true, Lines: true, Any: true, Fix: "put large or binary data into a file, and send its name"}
	Message       = Kind{Noun: "message", Most: thread.MaxEvent, Lines: true, Any: true, Fix: "put large or binary data into a file, and send its name"}
	Key           = Kind{Noun: "key", Most: nameMost, Any: true, Fix: "give 1 to 255 printable characters"}
	Variable      = Kind{Noun: "name of an environment variable", Most: nameMost, Check: checkVariable, Fix: "give a name such as OPENAI_API_KEY"}
	Database      = Kind{Noun: "database", Most: pathMost, Check: checkDatabase, Fix: "give a URL such as postgres://claw@db/claw, env:NAME or file:PATH"}
	Name          = Kind{Noun: "name", Most: nameMost}
	Profile       = Kind{Noun: "profile", Most: nameMost, Any: true, Check: layout.CheckProfile}
	Term          = Kind{Noun: "word", Most: nameMost, Any: true}
	Instant       = Kind{Noun: "time", Most: nameMost, Any: true, Check: checkInstant, Fix: "use a form such as 24h, 7d or 2006-01-02, or 'all'"}
	Thinking      = Kind{Noun: "thinking", Most: nameMost, Any: true, Check: checkThinking, Fix: "use " + thinking.Form}
	Domain        = Kind{Noun: "trust domain", Most: nameMost, Any: true, Fix: "use a name such as agents.example.org"}
	Revision      = Kind{Noun: "version", Most: nameMost, Fix: "'agentctl file get ID NAME --json' prints the current version"}
	Digest        = Kind{Noun: "hash", Most: nameMost, Check: checkDigest, Fix: "give the hash that 'agentctl audit verify' printed"}
	Script        = Kind{Noun: "command", Most: valueMost, Lines: true, Any: true}
	Consumer      = Kind{Noun: "consumer", Most: nameMost, Check: checkConsumer, Fix: "give a name without /; 'thread info' lists the consumers"}
	Session       = Kind{Noun: "session key", Most: keyMost, Check: checkSession, Fix: "'agentctl sessions list ID' shows the keys of an agent", offer: offerSessions}
	Title         = Kind{Noun: "title", Most: nameMost, Empty: true, Any: true}
	Verbose       = Kind{Noun: "verbose", Most: nameMost, Empty: true, Any: true, Check: oneOf("off", "on", "full"), Fix: "use off, on or full, or nothing for the setting of the agent"}
	Reasoning     = Kind{Noun: "reasoning", Most: nameMost, Empty: true, Any: true, Check: oneOf("off", "stream", "block"), Fix: "use off, stream or block, or nothing for the setting of the agent"}
	QueueMode     = Kind{Noun: "queue mode", Most: nameMost, Empty: true, Any: true, Check: oneOf("followup", "collect", "steer", "interrupt"), Fix: "use followup, collect, steer or interrupt, or nothing for the setting of the agent"}
	UsageFooter   = Kind{Noun: "usage footer", Most: nameMost, Empty: true, Any: true, Check: oneOf("off", "tokens", "full"), Fix: "use off, tokens or full, or nothing for the setting of the agent"}
	Elevated      = Kind{Noun: "elevated", Most: nameMost, Empty: true, Any: true, Check: oneOf("off", "on", "ask", "full"), Fix: "use off, on, ask or full, or nothing for the setting of the agent"}
	Security      = Kind{Noun: "security", Most: nameMost, Any: true, Check: oneOf("deny", "allowlist", "full"), Fix: "use deny, allowlist or full"}
	AskMode       = Kind{Noun: "ask", Most: nameMost, Any: true, Check: oneOf("off", "on-miss", "always"), Fix: "use off, on-miss or always"}
	Entry         = Kind{Noun: "entry of an allow list", Most: pathMost, Any: true, Check: checkEntry, Fix: "give the path of a program and the words that must follow, such as /usr/bin/git push"}
	EntryID       = Kind{Noun: "entry id", Most: nameMost, Fix: "'agentctl approvals policy show ID' lists the entries"}
	ChannelType   = Kind{Noun: "type of channel", Most: nameMost, Any: true, Check: checkWord, Fix: "use a type such as telegram, discord or slack"}
	Platform      = Kind{Noun: "chat platform", Most: nameMost, Any: true, Check: checkWord, Fix: "use telegram, slack or discord"}
	Account       = Kind{Noun: "account", Most: nameMost, Any: true, Check: checkWord, Fix: "use the name of an account"}
	AnyAccount    = Kind{Noun: "account", Most: nameMost, Any: true, Check: checkAnyAccount, Fix: "use the name of an account, or * for every account of the type"}
	PlatformPeer  = Kind{Noun: "peer of a platform", Most: pathMost, Any: true, Check: checkPlatformPeer, Fix: "use dm:ID, group:ID or channel:ID"}
	PlatformID    = Kind{Noun: "platform id", Most: nameMost, Any: true, Fix: "use the id that the platform shows"}
	Channel       = Kind{Noun: "account", Most: nameMost, Check: checkWord, Fix: "'agentctl channels list' shows the accounts", offer: offerChannels}
	Reference     = Kind{Noun: "reference", Most: valueMost, Any: true, Check: checkReference, Fix: "give env:NAME or file:PATH, never the secret itself"}
	DirectPolicy  = Kind{Noun: "rule for direct messages", Most: nameMost, Any: true, Check: oneOf("pairing", "allowlist", "open", "off"), Fix: "use pairing, allowlist, open or off"}
	Server        = Kind{Noun: "MCP server", Most: nameMost, Check: checkServer, Fix: "'agentctl mcp list' shows the servers", offer: OfferServers}
	NewServer     = Kind{Noun: "MCP server", Most: nameMost, Any: true, Check: checkServer}
	Assignment    = Kind{Noun: "variable", Most: valueMost, Any: true, Check: checkAssignment, Fix: "give NAME=VALUE, such as TOKEN=env:GH_TOKEN"}
	Header        = Kind{Noun: "header", Most: valueMost, Any: true, Check: checkHeader, Fix: "give NAME=VALUE, such as Authorization=env:SHOP_TOKEN"}
	NetworkOf     = Kind{Noun: "network", Most: valueMost, Any: true, Check: checkNetwork, Fix: "use off, open, or hosts such as api.example.org,*.example.net"}
	Cwd           = Kind{Noun: "place", Most: nameMost, Any: true, Check: oneOf("scratch", "workdir"), Fix: "use scratch or workdir"}
	Preset        = Kind{Noun: "preset", Most: nameMost, Any: true, Check: oneOf("playwright"), Fix: "use playwright"}
	AnySession    = func() Kind { k := Session; k.Any = true; return k }()
	SessionOrName = Kind{Noun: "session", Most: keyMost, Any: true, Check: checkSessionOrName, Fix: "use a session key, as 'agentctl sessions list ID' shows them, or the name of a conversation", offer: offerSessions}
	NoModel       = func() Kind { k := Model; k.Empty = true; return k }()
	NoThinking    = func() Kind { k := Thinking; k.Empty = true; return k }()
	AnySource     = func() Kind { k := Source; k.Any = true; return k }()
	AnyConsumer   = func() Kind { k := Consumer; k.Any = true; return k }()
	AnyFilter     = func() Kind { k := Filter; k.Empty = true; return k }()
	AnySubtype    = func() Kind { k := Subtype; k.Empty = true; return k }()
)

// verify says what is wrong with a text, with subject as the start of the sentence.
func (k Kind) verify(subject, text string, help string) error {
	fix := k.Fix
	if fix == "" {
		fix = help
	}
	wrong := func(format string, args ...any) error {
		return fault.Usage(subject+" "+fmt.Sprintf(format, args...), fix)
	}
	switch {
	case text == "" && !k.Empty:
		return wrong("is empty")
	case len(text) > k.Most:
		return wrong("has %d bytes, more than the limit of %d", len(text), k.Most)
	case !utf8.ValidString(text):
		return wrong("is not valid UTF-8: %.80q", text)
	case strings.IndexFunc(text, k.forbidden) >= 0:
		return wrong("has a control character: %.80q", text)
	case k.Check == nil || text == "":
		return nil
	}
	err := k.Check(text)
	if err == nil {
		return nil
	}
	f := fault.From(err)
	if f.Fix != "" {
		fix = f.Fix
	}
	if operand, ok := strings.CutPrefix(subject, "the argument "); ok {
		return fault.Usage("the argument "+operand+": "+f.What, fix)
	}
	return fault.Usage(f.What, fix) // the flag is named before it
}

// forbidden are the characters that a text of this kind does not have: a NUL ends the text
// for the system, and a line break or an escape sequence in a name confuses who reads it.
func (k Kind) forbidden(r rune) bool {
	if k.Lines {
		return r == 0
	}
	return unicode.IsControl(r)
}

// Operands are the kinds of the arguments of c by their names in its first line of help,
// without brackets and dots. An annotation of c with the name of an argument names another
// one of [operands] for it, where the word means something special in this command.
func Operands(c *cobra.Command) map[string]Kind {
	kinds := map[string]Kind{}
	for _, name := range strings.Fields(c.Use)[1:] {
		name = plainName(name)
		if k, ok := operands[cmp.Or(c.Annotations[name], name)]; ok {
			kinds[name] = k
		}
	}
	return kinds
}

// TextFlag adds a flag that takes a text of a kind; text has its default. The name may have
// a letter behind a comma.
func TextFlag(f *pflag.FlagSet, text *string, name string, k Kind, help string) {
	name, short, _ := strings.Cut(name, ",")
	f.VarP(&value{kind: "string", text: *text, of: &k, set: func(s string) error {
		*text = s
		return nil
	}}, name, short, help)
}

// TextsFlag is [TextFlag] for a flag that may be repeated.
func TextsFlag(f *pflag.FlagSet, texts *[]string, name string, k Kind, help string) {
	f.Var(&value{kind: "string", of: &k, set: func(s string) error {
		*texts = append(*texts, s)
		return nil
	}}, name, help)
}

// KindOf is the kind of text that a flag takes; false for a number, a choice or a switch.
func KindOf(f *pflag.Flag) (Kind, bool) {
	v, ok := f.Value.(*value)
	if !ok || v.of == nil {
		return Kind{}, false
	}
	return *v.of, true
}

func checkURL(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%.80q is not an address of HTTP", text)
	}
	return nil
}

func checkModel(text string) error {
	if strings.ContainsFunc(text, unicode.IsSpace) || strings.HasPrefix(text, "-") {
		return fmt.Errorf("%.80q is not the name of a model", text)
	}
	return nil
}

// checkReference does not repeat the text: it may be the secret.
func checkReference(text string) error {
	if !reference.Is(text) {
		return errors.New("it is not a reference to a secret")
	}
	return nil
}

func checkType(text string) error {
	if text != thread.TypeMessage && text != thread.TypeRecord {
		return fmt.Errorf("%.80q is not a type of event", text)
	}
	return nil
}

// checkDatabase accepts a URL, a reference to one, and the form with keywords.
func checkDatabase(text string) error {
	for _, prefix := range []string{"postgres://", "postgresql://", "env:", "file:"} {
		if strings.HasPrefix(text, prefix) {
			return nil
		}
	}
	if !strings.Contains(text, "=") {
		return errors.New("it is not the address of a database") // without it: it may hold a password
	}
	return nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkVariable(text string) error {
	if !variable.MatchString(text) {
		return fmt.Errorf("%.80q is not the name of an environment variable", text)
	}
	return nil
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

func checkDigest(text string) error {
	if !digest.MatchString(text) {
		return fmt.Errorf("%.80q is not a hash of 64 hexadecimal digits", text)
	}
	return nil
}

func checkConsumer(text string) error {
	if strings.Contains(text, "/") {
		return fmt.Errorf("%.80q has a /, and the lock of a consumer is a file of its name", text)
	}
	return nil
}

var conversation = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_.]{0,62}$`) })

func checkConversation(text string) error {
	if !conversation().MatchString(text) {
		return fmt.Errorf("%.80q is not the name of a conversation", text)
	}
	return nil
}

func checkThinking(text string) error {
	if _, ok := thinking.Parse(text); !ok {
		return fmt.Errorf("%.80q is not a setting for thinking", text)
	}
	return nil
}

// checkInstant is for a time in the past or "all".
func checkInstant(text string) error {
	if text == "all" {
		return nil
	}
	_, err := Past(text, time.Now())
	return err
}

// checkSession accepts what begins as a session key does, in any case. The registry finds the
// session that it names.
func checkSession(text string) error {
	if SessionAgent(text) == "" {
		return fmt.Errorf("%.80q is not a session key, which begins with agent:ID: and names a conversation", text)
	}
	return nil
}

// checkSessionOrName accepts the name of a conversation too, which has no colon.
func checkSessionOrName(text string) error {
	if strings.Contains(text, ":") {
		return checkSession(text)
	}
	return checkConversation(text)
}

// SessionAgent returns the agent of a session key that may be written in another case; empty
// when it names none.
func SessionAgent(key string) string { return sessionkey.AgentOf(strings.ToLower(key), "") }

func checkServer(text string) error {
	if !config.IsServer(text) {
		return fault.Usage(fmt.Sprintf("%.80q is not the name of an MCP server", text), "use "+config.ServerForm)
	}
	return nil
}

func checkAssignment(text string) error {
	name, _, ok := strings.Cut(text, "=")
	if !ok || !variable.MatchString(name) {
		return fmt.Errorf("%.80q is not NAME=VALUE", name) // the value may be a secret
	}
	return nil
}

func checkHeader(text string) error {
	name, value, _ := strings.Cut(text, "=")
	if name == "" || value == "" || strings.ContainsAny(name, " :") {
		return fmt.Errorf("%.80q is not NAME=VALUE", name)
	}
	return nil
}

func checkNetwork(text string) error {
	if text == "off" || text == "open" {
		return nil
	}
	_, err := egress.Parse(strings.Split(text, ","))
	return err
}

// oneOf is the check of a text with a fixed set of values.
func oneOf(values ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(values, text) {
			return fmt.Errorf("%.80q is none of %s", text, strings.Join(values, ", "))
		}
		return nil
	}
}

func checkEntry(text string) error {
	if words := strings.Fields(text); len(words) == 0 || !strings.Contains(words[0], "/") {
		return fmt.Errorf("%.80q does not begin with the path of a program", text)
	}
	return nil
}

func checkWord(text string) error {
	if !sessionkey.IsWord(text) {
		return fmt.Errorf("%.80q is not a name: use small letters, digits, dots, - and _, and no word of session keys", text)
	}
	return nil
}

func checkAnyAccount(text string) error {
	if text == "*" {
		return nil
	}
	return checkWord(text)
}

func checkPlatformPeer(text string) error {
	_, _, err := PeerOf(text)
	return err
}

// PeerOf divides KIND:ID, which names a conversation of a platform.
func PeerOf(text string) (kind, id string, err error) {
	kind, id, _ = strings.Cut(text, ":")
	if id == "" || kind != sessionkey.DM && kind != sessionkey.Group && kind != sessionkey.ChannelGroup {
		return "", "", fmt.Errorf("%.80q is not KIND:ID", text)
	}
	return kind, id, nil
}

var pairingCode = regexp.MustCompile(`^[A-Za-z2-9]{4}[ -]?[A-Za-z2-9]{4}$`)

func checkPerson(text string) error {
	account, peer, ok := strings.Cut(text, ":")
	if ok && peer != "" && checkWord(account) == nil || !ok && pairingCode.MatchString(text) {
		return nil
	}
	return fmt.Errorf("%.80q is neither a code nor ACCOUNT:PEER", text)
}

func checkBinding(text string) error {
	if n, err := strconv.ParseInt(text, 10, 32); err != nil || n < 1 {
		return fmt.Errorf("%.80q is not the number of a binding", text)
	}
	return nil
}

// operands are the arguments that mean the same in every command.
var operands = map[string]Kind{
	"ID":     Agent,
	"NEW ID": NewAgent,
	"THREAD": {Noun: "thread", Most: pathMost, Check: Thread, Fix: "'agentctl threads ID' lists them", offer: offerThreads},
	"RUN":    {Noun: "run", Most: pathMost, Check: RunID, offer: offerRuns},
	"MESSAGE": {Noun: "message", Most: pathMost, offer: offerMessages, Check: func(s string) error {
		_, _, err := MessageID(s)
		return err
	}},
	"PROVIDER":   Provider,
	"SESSION":    Session,
	"CHANNEL":    Channel,
	"PERSON":     {Noun: "person", Most: pathMost, Check: checkPerson, Fix: "'agentctl pair list' shows who asked; use ACCOUNT:PEER, or the code that the person was sent", offer: offerPersons},
	"ACCOUNT":    Account,
	"TYPE":       ChannelType,
	"SERVER":     Server,
	"NEW SERVER": NewServer,
	"WORD":       {Noun: "word of the command", Most: pathMost, Empty: true, Any: true},
	"HOOK":       {Noun: "hook", Most: nameMost, Fix: "'agentctl hooks list' shows the hooks"},
	"TOOL":       {Noun: "tool", Most: nameMost, Fix: "'agentctl tools list ID --all' shows the tools"},
	"N":          {Noun: "binding number", Most: nameMost, Check: checkBinding, Fix: "'agentctl bindings list' shows the numbers, which begin with 1"},
	"APPROVAL":   {Noun: "approval", Most: nameMost, Fix: "'agentctl approvals list' shows the ids"},
	"QUESTION":   {Noun: "question", Most: nameMost, Fix: "'agentctl questions list' shows the ids"},
	"ANSWER":     {Noun: "answer", Most: valueMost, Lines: true, Any: true, Fix: "give a number or the text of an option, or an answer in words"},
	"LETTER":     {Noun: "dead letter", Most: pathMost, Fix: "use t:17 or d:threads/peers/cli-cli:4, as 'agentctl dlq list' shows them"},
	"DEST":       Path,
	"PATH":       Path,
	"FILE":       Path,
	"SRC":        File,
	"NAME":       Name,
	"KIND":       Name,
	"LEVEL":      Name,
	"SHELL":      Name,
	"KEY":        {Noun: "setting", Most: nameMost, Fix: "'agentctl config explain' lists the settings"},
	"VALUE":      {Noun: "value", Most: valueMost, Empty: true, Fix: "'agentctl config explain KEY' shows what a setting may hold"},
	"WORDS":      {Noun: "description", Most: valueMost, Any: true, Fix: "describe the task in a few words"},
	"TEXT":       Message,
	"COMMAND":    Name,
}
