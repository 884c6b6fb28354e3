// Package config defines the settings of an agent as values: which keys exist, what each
// means and may hold, its default, when a change is in force, and how it is written.
//
// One table has all of this ([Settings]), also for the keys of theclaw.yaml: what is read and
// refused, `agentctl config explain`, completion and docs/settings.md come from it.
//
// It promises that [Default] passes every check and that what [Marshal] writes is read
// back equal by package layer. Secrets are references (`env:NAME`, `file:PATH`); a value
// that is not one is refused and never repeated in a message.
//
// It reads no YAML and no files: package layer reads YAML, package agentdir files.
package config

import (
	"slices"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// Config is what an agent runs with. Zero is not valid; start from [Default].
type Config struct {
	AgentID string // equals the name of the agent's directory
	Kind    string // system or user
	Flavor  string // the table of defaults: theclaw (default), openclaw or agentclaw
	// SkipBootstrap: a new workspace of the flavor openclaw is empty.
	SkipBootstrap bool
	Pai           Pai
	Inbox         Inbox
	Session       Session
	Routing       Routing
	// Timezone is the name of the time zone of the agent's people; empty: that of the host.
	Timezone string
	Outbound []Outbound // nil: key absent; empty: no external delivery
	Channels map[string]Channel
	Retry    Limits // of model calls; default 3 attempts, 24 h
	Deliver  Deliver
	Reply    Reply
	// Verbose is what a reply shows of the calls of tools: off (default), on or full; Reasoning where the model's
	// thinking is shown: off (default), stream or block.
	Verbose, Reasoning string
	// HumanDelay is between the messages of one run; none by default.
	HumanDelay Delay
	Media      Media
	// ContextWindow and MaxOutputTokens are in tokens; defaults 128000 and 4096.
	ContextWindow, MaxOutputTokens int
	Context                        Context
	Compaction                     Compaction
	Run                            Run
	Queue                          Queue
	Sandbox                        Sandbox
	Memory                         Memory
	OnError                        OnError
	Quota                          Quota
	Price                          Price
	Workdir                        Workdir
	// Approvals is the older form of Tools.Exec: none or ask, and empty (default) where a layer
	// as late or later sets Tools.Exec.Security or Ask. Where it is set, those have its meaning.
	Approvals string
	Tools     Tools
	MCP       MCP
	// HomeTools are the lists for all agents of the home, which decide besides those of the agent.
	HomeTools ToolLists
}

// SandboxTools are the lists of tools of conversations in the sandbox.
type SandboxTools struct{ Allow, Deny []string }

// ToolLists choose tools, for all models and by provider.
type ToolLists struct {
	toolpolicy.Scope
	ByProvider toolpolicy.Providers
}

// Tools choose which tools the model has. Profile is theclaw (default), minimal, coding,
// messaging, full or agentclaw. Presentation chooses the names that the model sees: theclaw
// (default), openclaw or agentclaw.
type Tools struct {
	Profile, Presentation string
	ToolLists
	Sandbox SandboxTools
	// Parallel (8) is the most reads that run together. ResultChars (30,000) is how many characters of
	// a result the model reads.
	Parallel, ResultChars int
	OutputKeep            OutputKeep
	Read                  ReadTool
	FS                    FileTools
	WebFetch, HTTP        WebTool
	WebSearch             WebSearch
	Exec                  Exec
	// ApprovalTimeout is how long a question for an approval waits; default 5 minutes.
	ApprovalTimeout time.Duration
	// ApprovalNotify is where what waits for an approval is shown in chats: NotifyOwners (default), NotifyOrigin or
	// NotifyNone.
	ApprovalNotify string
	// QuestionTimeout is how long ask_user waits for an answer; 1 hour.
	QuestionTimeout time.Duration
	Elevated        Elevated
	// ExternalGuard names what a person is asked for where text from outside is part of a turn: GuardHost, GuardMCP.
	ExternalGuard []string
}

// The values of ApprovalNotify: the direct chats of the owners, the chat of the message where an owner wrote it and
// theirs else, and none.
const (
	NotifyOwners = "owners"
	NotifyOrigin = "origin"
	NotifyNone   = "none"
)

// The values of ExternalGuard: commands outside of the sandbox, and calls of MCP servers with an effect.
const (
	GuardHost = "host"
	GuardMCP  = "mcp"
)

// Elevated lets a command ask to run outside of the sandbox, for a message from a person in AllowFrom: FromOwners or
// type:peer. Default is the mode of a conversation for which none is set: off (default), on, ask or full. It is not
// Enabled by default.
type Elevated struct {
	Enabled   bool
	Default   string
	AllowFrom []string
}

// FromOwners stands for all owners in AllowFrom of [Elevated].
const FromOwners = "owners"

// MCP names the servers of the home whose tools the profile allows as well.
type MCP struct{ Use []string }

// OlderApprovals returns what approvals: none and approvals: ask mean.
func OlderApprovals(value string) (security, ask string) {
	if value == "ask" {
		return string(execpolicy.Full), string(execpolicy.AskAlways)
	}
	return string(execpolicy.Full), string(execpolicy.AskOff)
}

// Exec bounds the programs that tools run. Security, Ask, AskFallback and SafeBins are the policy for those that
// run outside of the sandbox or with the network open: values of package execpolicy; full, off, deny and the safe
// programs of that package. Timeout, 600 s, is of a call that names none. A call
// that runs longer than Yield goes on in the background; 0, the default: none does.
type Exec struct {
	Security, Ask, AskFallback string
	SafeBins                   []string

	Timeout, Yield time.Duration
	Background     Background
}

// Background bounds programs in the background: at most Max of an agent at a time, 8, each for
// at most MaxAge, 30 minutes. Notify (default): the agent gets a message when one ends.
type Background struct {
	Max    int
	MaxAge time.Duration
	Notify bool
}

// WebSearch chooses what web_search asks: Provider is off (default), auto, brave, searxng or duckduckgo; URL its
// address; Key a reference to its key, env:BRAVE_API_KEY by default; Results (5) how many are returned.
type WebSearch struct {
	Provider, URL, Key string
	Results            int
}

// OutputKeep is how long (7 days) and how much (256 MiB) complete outputs of tools and the previous contents of
// files are kept in the working directory.
type OutputKeep struct {
	Age    time.Duration
	MaxMiB int
}

// FileTools sets grep, find and ls. Ignore are names that they leave out: .git, node_modules and .output
// by default.
type FileTools struct{ Ignore []string }

// ReadTool bounds what one call of read shows: 50 KiB and 2,000 lines.
type ReadTool struct{ MaxBytes, MaxLines int }

// WebTool bounds a tool for the web. MaxChars is 10,000 for web_fetch and 50,000 for
// http_request, Timeout 10 s and 30 s. AllowPrivate lists addresses, in CIDR form, that it may
// reach although they are not public.
type WebTool struct {
	MaxChars     int
	Timeout      time.Duration
	AllowPrivate []string
}

// Pai names the model. The defaults are openai and gpt-4o.
type Pai struct{ Provider, Model string }

// Inbox relocates the inbox thread; an empty Path is the agent's own inbox directory.
// External reports whether people outside may write to it: allow, refuse, or auto, which
// refuses for system agents but admin (S0-20). The console is always open.
type Inbox struct{ Path, External string }

// Routing chooses the conversation thread: per-peer (default), per-channel, per-agent. Groups
// is the conversation of a message of a group: auto (default), same or per-conversation.
// [Config.DMScope] and [Config.SharesGroups] answer what follows from both groups of keys.
type Routing struct{ Default, Groups string }

// Session sets which direct messages share a conversation and when one starts over.
// DMScope is empty when routing.default decides: a layer that sets only routing.default
// empties the DMScope of the layers below it.
type Session struct {
	DMScope, MainKey string
	Reset            SessionReset
}

// SessionReset sets when a conversation begins a new epoch: Mode is off, daily, idle or
// both; At is HH:MM in the agent's time zone; Idle is the time without a message.
type SessionReset struct {
	Mode, At string
	Idle     time.Duration
}

// Outbound sends the replies of the threads a pattern matches through a channel.
type Outbound struct {
	ThreadPattern string // glob below threads/, `**` for any depth
	Via           string // a built-in channel or a name in Channels
}

// Channel is a named way out. Secret is a reference; AllowPrivate lets a webhook
// reach loopback and private addresses and use plain http.
type Channel struct {
	Type, URL, Secret string
	AllowPrivate      bool
}

// Limits bound how often and for how long something is tried.
type Limits struct {
	MaxAttempts int
	MaxAge      time.Duration
}

// Deliver bounds sends: 3 attempts and 24 h by default. A message to the outside of
// more than MaxChars characters goes in parts; 0 (default): only the limit of its platform counts.
type Deliver struct {
	Limits
	MaxChars int
}

// Reply sets what becomes of the text before a tool call: off (default) drops it,
// text_end sends it at once as a message of its own, message_end puts it before the
// last answer. MessageTool offers the model a tool to send messages while it works.
// Blocks sends a long answer in blocks while it is written: off (default) or on.
// UsageFooter ends a reply in a chat with what its turn has used: [FooterOff] (default),
// [FooterTokens] or [FooterFull].
type Reply struct {
	Break       string
	Blocks      string
	Block       Block
	MessageTool bool
	UsageFooter string
}

// Block says where an answer that is being written is cut: between Min and Max characters
// (800, 1200) at a Break (paragraph), or when nothing was added for Idle (1 s).
type Block struct {
	Min, Max int
	Break    string
	Idle     time.Duration
}

// The values of Reply.UsageFooter.
const (
	FooterOff    = "off"
	FooterTokens = "tokens"
	FooterFull   = "full"
)

// The values of Reply.Blocks.
const (
	blocksOff = "off"
	blocksOn  = "on"
)

// Context is what goes into a prompt; RecentMessages is 20 by default.
type Context struct{ RecentMessages int }

// Compaction sets when a memory layer is digested: at a share of the input budget
// (80 %) or after turns (10), keeping the newest tokens raw (4096); a peer's layer
// after PeerEvery thread compactions (5), the agent's after AgentEvery (20). Strategy
// is summarise (default) or truncate, which forgets instead of asking a model.
type Compaction struct {
	Strategy                                                 string
	AtPercent, AfterTurns, KeepTokens, PeerEvery, AgentEvery int
}

// Run bounds the work of one agent: 64 lanes at once, 600 s per turn.
type Run struct {
	Concurrency int
	Timeout     time.Duration
}

// Queue sets what becomes of messages that come while a conversation is being
// worked on: followup (default) gives each a turn of its own, collect answers
// them together in the next one, steer puts them into the running one, interrupt
// ends that.
type Queue struct {
	Mode string
	// Debounce is how long a turn waits after the newest message of its conversation; default 0.
	Debounce time.Duration
	// Cap is how many messages of one person may wait in a conversation of a chat platform;
	// default 20. Drop says what becomes of more: DropSummarize (default) and DropOld put the
	// oldest before the model in short or leave them out, DropNew refuses the newest.
	Cap  int
	Drop string
}

// Values of Queue.Drop.
const (
	DropSummarize = "summarize"
	DropOld       = "old"
	DropNew       = "new"
)

// Sandbox of the agent's programs; no network. [Config.SandboxAt] is what follows for a conversation.
type Sandbox struct {
	// Mode is off, non-main or all (default); the older values required and reduced are all with that level.
	Mode string
	// Level is required (default) or reduced.
	Level string
	// Scope says which conversations have the same scratch directory: session, agent (default) or shared.
	Scope string
	// WorkspaceAccess is none, ro or rw (default).
	WorkspaceAccess string
	Network         Network
	// Driver is auto (default), for the sandbox of package sandbox, or docker.
	Driver  string
	Docker  Docker
	Browser Browser
}

// Memory reports whether the agent layer may digest peers' words; default false.
type Memory struct{ Share bool }

// OnError sets whether a peer is notified that its message has no answer; auto (default)
// notifies a person in a direct chat of a chat platform.
type OnError struct{ NotifyPeer Switch }

// Switch is a setting that is on, off, or decided case by case.
type Switch string

// The values of a Switch, as they are written.
const (
	On   Switch = "true"
	Off  Switch = "false"
	Auto Switch = "auto"
)

// Quota bounds what an agent, and each of its peers, may use in a day of UTC; 0
// is no limit, which is the default of all but TokensPerDay, 5,000,000. PairPerMinute bounds how often one
// other agent may write to it; default 60.
type Quota struct {
	MessagesPerDay, PeerMessagesPerDay, TokensPerDay, PeerTokensPerDay, CentsPerDay, PeerCentsPerDay, PairPerMinute int
}

// Daily reports whether anything of a day is limited, and so counted.
func (q Quota) Daily() bool { q.PairPerMinute = 0; return q != Quota{} }

// TokensOnly reports whether the tokens of the agent are all that is limited of a day.
func (q Quota) TokensOnly() bool {
	q.PairPerMinute = 0
	return q == Quota{TokensPerDay: q.TokensPerDay} && q.TokensPerDay > 0
}

// Price is what a million tokens of the model cost, in cents; 0: there is none.
type Price struct{ InputCents, OutputCents int }

// Cost of tokens, in cents; known is false where a price is not set, and for tokens that the cache of a provider read or
// wrote, which have none. What has no price is no part of the cost then.
func (p Price) Cost(t price.Tokens) (cents float64, known bool) {
	cents, known = price.Price{Input: float64(p.InputCents), Output: float64(p.OutputCents)}.Cost(t)
	return cents, known && p.InputCents > 0 && p.OutputCents > 0
}

// Workdir sets how runners on several machines share the working directory. Shared is
// an absolute directory that all of them have, such as a network file system; Sync is
// off (default) or snapshot: the registry keeps it. Of a snapshot MaxMiB (default 64) is
// the most, and Ignore are patterns of what is not in it, with blanks between.
type Workdir struct {
	Shared, Sync, Ignore string
	MaxMiB               int
}

// SafetyTokens stay free between prompt and answer (S0-47).
const SafetyTokens = 512

// InputBudget returns how many tokens a prompt may have.
func (c *Config) InputBudget() int { return c.ContextWindow - c.MaxOutputTokens - SafetyTokens }

// The values of Verbose and Reasoning, which a session may have as well.
const (
	VerboseOff      = "off"
	VerboseOn       = "on"
	VerboseFull     = "full"
	ReasoningOff    = "off"
	ReasoningStream = "stream"
	ReasoningBlock  = "block"
)

// Default returns the settings of an agent that sets nothing, with the flavor theclaw. The
// other flavors differ from it by the table of [FlavorDefaults].
func Default() Config {
	return Config{
		Kind:            "user",
		Flavor:          "theclaw",
		Pai:             Pai{Provider: "openai", Model: "gpt-4o"},
		Inbox:           Inbox{External: "auto"},
		Session:         Session{MainKey: sessionkey.DefaultMainKey, Reset: SessionReset{Mode: ResetOff, At: "04:00", Idle: 24 * time.Hour}},
		Routing:         Routing{Default: "per-peer", Groups: "auto"},
		Retry:           Limits{MaxAttempts: 3, MaxAge: 24 * time.Hour},
		Deliver:         Deliver{Limits: Limits{MaxAttempts: 3, MaxAge: 24 * time.Hour}},
		Reply:           Reply{Break: "off", Blocks: blocksOff, Block: Block{Min: 800, Max: 1200, Break: "paragraph", Idle: time.Second}, UsageFooter: FooterOff},
		Verbose:         VerboseOff,
		Reasoning:       ReasoningOff,
		ContextWindow:   128000,
		MaxOutputTokens: 4096,
		Context:         Context{RecentMessages: 20},
		Compaction:      Compaction{Strategy: "summarise", AtPercent: 80, AfterTurns: 10, KeepTokens: 4096, PeerEvery: 5, AgentEvery: 20},
		Run:             Run{Concurrency: 64, Timeout: 600 * time.Second},
		Queue:           Queue{Mode: "followup", Cap: 20, Drop: DropSummarize},
		Sandbox:         Sandbox{Mode: SandboxAll, Level: levelRequired, Scope: ScopeAgent, WorkspaceAccess: AccessReadWrite, Driver: driverAuto, Docker: defaultDocker(), Browser: defaultBrowser()},
		Quota:           Quota{PairPerMinute: 60, TokensPerDay: 5_000_000},
		OnError:         OnError{NotifyPeer: Auto},
		Tools: Tools{
			Profile: toolpolicy.Theclaw, Parallel: 8, ResultChars: 30_000,
			OutputKeep:   OutputKeep{Age: 7 * 24 * time.Hour, MaxMiB: 256},
			Read:         ReadTool{MaxBytes: 50 << 10, MaxLines: 2000},
			FS:           FileTools{Ignore: []string{".git", "node_modules", ".output"}},
			WebFetch:     WebTool{MaxChars: 10_000, Timeout: 10 * time.Second},
			WebSearch:    WebSearch{Provider: searchOff, Key: "env:BRAVE_API_KEY", Results: 5},
			HTTP:         WebTool{MaxChars: 50_000, Timeout: 30 * time.Second},
			Presentation: toolpolicy.Theclaw,
			Exec: Exec{
				Security: string(execpolicy.Full), Ask: string(execpolicy.AskOff), AskFallback: string(execpolicy.Deny), SafeBins: slices.Clone(execpolicy.DefaultSafeBins),
				Timeout: 600 * time.Second, Background: Background{Max: 8, MaxAge: 30 * time.Minute, Notify: true},
			},
			ApprovalTimeout: 5 * time.Minute,
			ApprovalNotify:  NotifyOwners,
			QuestionTimeout: time.Hour,
			Elevated:        Elevated{Default: "off"},
		},
		Workdir: Workdir{Sync: "off", MaxMiB: 64},
	}
}

// Via returns the channel for a thread; see channel.Via, which is the rule of the
// deliverer, too.
func (c *Config) Via(threadID string) (via string, ok bool) {
	var rules []channel.Rule // nil without the key
	if c.Outbound != nil {
		rules = make([]channel.Rule, 0, len(c.Outbound))
	}
	for _, o := range c.Outbound {
		rules = append(rules, channel.Rule(o))
	}
	return channel.Via(rules, threadID)
}
