package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// A Field is one scalar key, such as retry.max_age, and all that is known of it: what is
// read from files, refused, explained and completed comes from this table.
type Field struct {
	Key string
	// Ref points into a Config: *string, *int, *bool, *Switch, *Network, *Amount, *Variables, *Delay, *Transcribe,
	// *time.Duration or *[]string.
	Ref func(*Config) any
	// Adds: a list of a later layer is added to that of an earlier one. Else it replaces that.
	Adds bool
	Rule Rule
	// Unit of a number; empty: it is a count of what Meaning names.
	Unit   string
	Effect Effect
	// Own keys belong to one agent and are not allowed among the home-wide defaults.
	Own bool
	// OfHome keys are refused in config.yaml, which an agent may be able to change.
	OfHome bool
	// Example is another value than the default, as it is typed.
	Example string
	// Meaning is one or two sentences for a person, the first of which is enough in a list.
	Meaning string
}

// Effect says when a change of a setting is in force.
type Effect string

// The values of an Effect.
const (
	// EffectNow: the next call that uses it, also for work that has begun.
	EffectNow Effect = "at once"
	// EffectMessage: the next message; one that is being answered may keep the old value.
	EffectMessage Effect = "next message"
	// EffectIdle: when the lease of the agent was released, at the latest after lease.GrantKeep
	// without work.
	EffectIdle Effect = "after the agent was idle"
	// EffectRestart: when agentd has been restarted.
	EffectRestart Effect = "restart of agentd"
	// EffectNever: it cannot be changed.
	EffectNever Effect = "cannot be changed"
)

// fields in the order in which they are written and shown.
var fields = []Field{
	{
		Key: "agent_id", Ref: func(c *Config) any { return &c.AgentID },
		Rule: form(agentID, "lower-case letters, digits, _ and -, at most 64, starting with a letter or digit"), Effect: EffectNever, Own: true,
		Meaning: "The id of the agent. It must equal the name of the directory of the agent.",
	},
	{
		Key: "kind", Ref: func(c *Config) any { return &c.Kind },
		Rule: oneOf("system", "user"), Effect: EffectMessage, Own: true, Example: "system",
		Meaning: "What the agent is for: `user` works for people, `system` belongs to the installation. The prompt of a system agent introduces the other agents, and of the system agents only `admin` takes messages from outside unless inbox.external is `allow`.",
	},
	{
		Key: "flavor", Ref: func(c *Config) any { return &c.Flavor },
		Rule: oneOf("theclaw", "openclaw", "agentclaw"), Effect: EffectMessage, Example: "openclaw",
		Meaning: "The set of default values. A flavor changes the defaults of the keys in the table of flavors, and openclaw the place and the first files of a workspace; nothing else.",
	},
	{
		Key: "pai.provider", Ref: func(c *Config) any { return &c.Pai.Provider },
		Rule: form(name, nameForm), Effect: EffectMessage, Example: "anthropic",
		Meaning: "The provider of the model. Where no file sets it, the runner uses its own default provider, whatever is shown here.",
	},
	{
		Key: "pai.model", Ref: func(c *Config) any { return &c.Pai.Model },
		Rule: form(name, nameForm), Effect: EffectMessage, Example: "claude-sonnet-4-5",
		Meaning: "The model. Where no file sets it, the runner uses the default model of the provider, whatever is shown here.",
	},
	{
		Key: "inbox.path", Ref: func(c *Config) any { return &c.Inbox.Path },
		Rule: form(line, "one line of 1 to 1024 bytes"), Effect: EffectRestart, Own: true, Example: "letters",
		Meaning: "The directory of the inbox, relative to the directory of the agent, or below a directory that inbox_paths lists. Without it the inbox is the directory `inbox` of the agent; stop agentd and move the directory yourself, since a change of this key moves nothing.",
	},
	{
		Key: "inbox.external", Ref: func(c *Config) any { return &c.Inbox.External },
		Rule: oneOf("auto", "allow", "refuse"), Effect: EffectNow, Example: "refuse",
		Meaning: "Whether people outside may write to the agent. `auto` refuses them for system agents except `admin`; the console is always allowed. A message that waits and is no longer allowed becomes a dead letter.",
	},
	{
		Key: "session.dm_scope", Ref: func(c *Config) any { return &c.Session.DMScope },
		Rule: oneOf("main", "per-peer", "per-channel-peer", "per-account-channel-peer"), Effect: EffectMessage, Example: "main",
		Meaning: "Which direct messages share a conversation: all of the agent, those of a peer on every channel, those of a peer on one type of channel, or those of a peer at one account. It means the same as routing.default; of the two the one in the later layer decides, and different values in one layer are refused.",
	},
	{
		Key: "session.main_key", Ref: func(c *Config) any { return &c.Session.MainKey },
		Rule: form(mainKey, "a word of lower-case letters, digits, _, . and -, at most 64, and not one with a meaning in session keys"), Effect: EffectMessage, Example: "home",
		Meaning: "The last word of the key of the conversation that all messages share when the scope is main.",
	},
	{
		Key: "session.reset.mode", Ref: func(c *Config) any { return &c.Session.Reset.Mode },
		Rule: oneOf(ResetOff, ResetDaily, ResetIdle, ResetBoth), Effect: EffectMessage, Example: "daily",
		Meaning: "When the next message of a conversation begins a new session: never, when its last message is older than the most recent session.reset.at, when it had no message for session.reset.idle, or in both cases.",
	},
	{
		Key: "session.reset.at", Ref: func(c *Config) any { return &c.Session.Reset.At },
		Rule: form(clock, "a time of day as HH:MM"), Effect: EffectMessage, Example: "05:30",
		Meaning: "The time of day of a daily reset, in the time zone of user_timezone.",
	},
	{
		Key: "session.reset.idle", Ref: func(c *Config) any { return &c.Session.Reset.Idle },
		Rule: lasting(time.Minute, 365*24*time.Hour), Effect: EffectMessage, Example: "2h",
		Meaning: "How long a conversation must be without a message for an idle reset. What others say in a group without addressing the agent does not count, for a daily reset either.",
	},
	{
		Key: "routing.default", Ref: func(c *Config) any { return &c.Routing.Default },
		Rule: oneOf("per-peer", "per-channel", "per-agent"), Effect: EffectMessage, Example: "per-agent",
		Meaning: "Which messages share a conversation: those of a peer, those of a channel, or all of the agent. session.dm_scope in the same or a later layer takes precedence.",
	},
	{
		Key: "routing.groups", Ref: func(c *Config) any { return &c.Routing.Groups },
		Rule: oneOf("auto", "same", "per-conversation"), Effect: EffectMessage, Example: "per-conversation",
		Meaning: "In which conversation the messages of a group are: with `per-conversation` in one of the group, with `same` in that of their author, as routing.default or session.dm_scope states. `auto` is per-conversation for accounts of the gateway and same for other sources.",
	},
	{
		Key: "user_timezone", Ref: func(c *Config) any { return &c.Timezone },
		Rule: form(timezone, "a name of the time zone database, or empty for that of the host"), Effect: EffectMessage, Example: "Europe/Berlin",
		Meaning: "The time zone of the people whom the agent works for.",
	},
	{
		Key: "skip_bootstrap", Ref: func(c *Config) any { return &c.SkipBootstrap },
		Effect: EffectNow, Example: "true",
		Meaning: "Whether a new workspace of the flavor openclaw is made without AGENTS.md, SOUL.md, TOOLS.md, IDENTITY.md, USER.md, HEARTBEAT.md, BOOTSTRAP.md and an empty git repository. They are made when the agent is created or started and has no workspace; nothing in a directory that exists is changed.",
	},
	{
		Key: "retry.max_attempts", Ref: func(c *Config) any { return &c.Retry.MaxAttempts },
		Rule: between(1, 100), Unit: "tries", Effect: EffectMessage, Example: "5",
		Meaning: "How many failed tries of the model make a message a dead letter. Tries that fail because the provider is down are not counted; retry.max_age bounds those.",
	},
	{
		Key: "retry.max_age", Ref: func(c *Config) any { return &c.Retry.MaxAge },
		Rule: lasting(time.Second, 30*24*time.Hour), Effect: EffectMessage, Example: "48h",
		Meaning: "How long a message waits for a provider that is down before it becomes a dead letter.",
	},
	{
		Key: "deliver.max_attempts", Ref: func(c *Config) any { return &c.Deliver.MaxAttempts },
		Rule: between(1, 100), Unit: "tries", Effect: EffectNow, Example: "5",
		Meaning: "How many failed sends make a reply a dead letter.",
	},
	{
		Key: "deliver.max_age", Ref: func(c *Config) any { return &c.Deliver.MaxAge },
		Rule: lasting(time.Second, 30*24*time.Hour), Effect: EffectNow, Example: "2h",
		Meaning: "How long a reply waits to be sent before it becomes a dead letter.",
	},
	{
		Key: "deliver.max_chars", Ref: func(c *Config) any { return &c.Deliver.MaxChars },
		Rule: orZero(leastChars, 1_000_000), Unit: "characters", Effect: EffectNow, Example: "4096",
		Meaning: "The longest message to the outside. A longer reply is sent in parts; 0: only the limit of the platform counts.",
	},
	{
		Key: "human_delay", Ref: func(c *Config) any { return &c.HumanDelay },
		Rule: delay(), Effect: EffectNow, Example: "natural",
		Meaning: "The pause between the messages of one run, such as the blocks of an answer. The first message is never delayed.",
	},
	{
		Key: "media.transcribe", Ref: func(c *Config) any { return &c.Media.Transcribe },
		Rule: transcribe(), Effect: EffectMessage, Example: "{provider: openai}",
		Meaning: "What makes text of the voice messages that people send, for the model: nothing (`off`), the endpoint of a provider of providers.yaml that has audio/transcriptions (its model is `whisper-1` where none is named), or a command, which runs in the sandbox of the agent and prints the text. A word `{file}` in the command stands for the path of the file; without one the path is the last argument. A file takes at most `timeout` (2m), and at most a quarter of what is left of run.timeout.",
	},
	{
		Key: "reply.break", Ref: func(c *Config) any { return &c.Reply.Break },
		Rule: oneOf("off", "text_end", "message_end"), Effect: EffectMessage, Example: "text_end",
		Meaning: "What becomes of the text that a model writes before a tool call: `off` drops it, `text_end` sends it at once as a message of its own, `message_end` puts it before the last answer.",
	},
	{
		Key: "reply.blocks", Ref: func(c *Config) any { return &c.Reply.Blocks },
		Rule: oneOf(blocksOff, blocksOn), Effect: EffectMessage, Example: "on",
		Meaning: "Whether a long answer is sent in blocks while the model is still writing it. Programs and clients that follow a run read its text as it is written anyway. With `on` the text before a tool call is a message of its own, whatever reply.break is.",
	},
	{
		Key: "reply.block.min", Ref: func(c *Config) any { return &c.Reply.Block.Min },
		Rule: between(leastChars, mostBlock), Unit: "characters", Effect: EffectMessage, Example: "200",
		Meaning: "The shortest block that ends at a break point. Where it is larger than reply.block.max, that one counts.",
	},
	{
		Key: "reply.block.max", Ref: func(c *Config) any { return &c.Reply.Block.Max },
		Rule: between(leastChars, mostBlock), Unit: "characters", Effect: EffectMessage, Example: "2000",
		Meaning: "The longest block. It ends at the best break point that there is: a paragraph, a line, a sentence, a word. A block of code is closed, and opened again in the next block.",
	},
	{
		Key: "reply.block.break", Ref: func(c *Config) any { return &c.Reply.Block.Break },
		Rule: oneOf("paragraph", "newline", "sentence"), Effect: EffectMessage, Example: "sentence",
		Meaning: "The least break point at which a block ends before it has reply.block.max characters.",
	},
	{
		Key: "reply.block.idle", Ref: func(c *Config) any { return &c.Reply.Block.Idle },
		Rule: lasting(100*time.Millisecond, time.Minute), Effect: EffectMessage, Example: "3s",
		Meaning: "After how long without new text what the model has written is sent as a block, however short it is.",
	},
	{
		Key: "reply.usage_footer", Ref: func(c *Config) any { return &c.Reply.UsageFooter },
		Rule: oneOf(FooterOff, FooterTokens, FooterFull), Effect: EffectMessage, Example: FooterTokens,
		Meaning: "Whether a reply through an account of a chat platform ends with a line that says what its turn has used: the tokens, or with `full` also those from the cache of the provider, the cost by the prices below `price` where all of the tokens have one, and the model. The line is in the chat alone: no prompt, no memory and no answer to a program has it.",
	},
	{
		Key: "reply.message_tool", Ref: func(c *Config) any { return &c.Reply.MessageTool },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether the model is offered a tool that sends messages while it works.",
	},
	{
		Key: "verbose_default", Ref: func(c *Config) any { return &c.Verbose },
		Rule: oneOf(VerboseOff, VerboseOn, VerboseFull), Effect: EffectMessage, Example: "on",
		Meaning: "What a reply over a channel shows of the calls of tools before its text, where the conversation has no other mode (`/verbose`): nothing, a line for each call, or also the beginning of its result. Arguments and results are shown to an owner in a direct conversation alone; others get the names of the tools and how each call ended. Unless it is `off` a reply is not sent in blocks. No prompt has these lines.",
	},
	{
		Key: "reasoning_default", Ref: func(c *Config) any { return &c.Reasoning },
		Rule: oneOf(ReasoningOff, ReasoningStream, ReasoningBlock), Effect: EffectMessage, Example: "stream",
		Meaning: "Where what the model thinks is shown, where the conversation has no other mode (`/reasoning`): nowhere, to clients that follow the run, or as a quotation before the reply over a channel. The quotation is for an owner in a direct conversation alone, and with it a reply is not sent in blocks; on the console `block` means `stream`.",
	},
	{
		Key: "context_window", Ref: func(c *Config) any { return &c.ContextWindow },
		Rule: between(1024, 100_000_000), Unit: "tokens", Effect: EffectMessage, Example: "200000",
		Meaning: "How many tokens the model takes, prompt and answer together. Where the window of the model is known to be smaller, that one counts. What max_output_tokens and a reserve of 512 leave for the prompt must be 256 or more.",
	},
	{
		Key: "max_output_tokens", Ref: func(c *Config) any { return &c.MaxOutputTokens },
		Rule: between(1, 10_000_000), Unit: "tokens", Effect: EffectMessage, Example: "8192",
		Meaning: "How many tokens one answer of the model may have.",
	},
	{
		Key: "context.recent_messages", Ref: func(c *Config) any { return &c.Context.RecentMessages },
		Rule: between(1, 1000), Unit: "messages", Effect: EffectMessage, Example: "40",
		Meaning: "How many earlier messages of a conversation a prompt contains word for word, at most. The conversation is digested before a message that is in no digest would leave the prompt.",
	},
	{
		Key: "compaction.strategy", Ref: func(c *Config) any { return &c.Compaction.Strategy },
		Rule: oneOf("summarise", "truncate"), Effect: EffectMessage, Example: "truncate",
		Meaning: "How earlier messages become memory: `summarise` asks the model for a digest, `truncate` forgets them.",
	},
	{
		Key: "compaction.at_percent", Ref: func(c *Config) any { return &c.Compaction.AtPercent },
		Rule: between(10, 100), Unit: "percent", Effect: EffectMessage, Example: "70",
		Meaning: "A conversation is digested when its prompt would need more than this share of the tokens that a prompt may have.",
	},
	{
		Key: "compaction.after_turns", Ref: func(c *Config) any { return &c.Compaction.AfterTurns },
		Rule: between(1, 10_000), Unit: "turns", Effect: EffectMessage, Example: "20",
		Meaning: "A conversation is digested after so many turns, even if its prompt is short.",
	},
	{
		Key: "compaction.keep_tokens", Ref: func(c *Config) any { return &c.Compaction.KeepTokens },
		Rule: between(0, 10_000_000), Unit: "tokens", Effect: EffectMessage, Example: "2048",
		Meaning: "The newest messages stay in the prompt word for word up to so many tokens, although they are digested. At most half of what compaction.at_percent allows is used.",
	},
	{
		Key: "compaction.peer_every", Ref: func(c *Config) any { return &c.Compaction.PeerEvery },
		Rule: between(1, 10_000), Unit: "digests", Effect: EffectMessage, Example: "3",
		Meaning: "After so many digests of the conversations of a peer the memory about that peer is rewritten.",
	},
	{
		Key: "compaction.agent_every", Ref: func(c *Config) any { return &c.Compaction.AgentEvery },
		Rule: between(1, 10_000), Unit: "digests", Effect: EffectMessage, Example: "10",
		Meaning: "After so many digests of conversations the memory of the agent is rewritten.",
	},
	{
		Key: "run.concurrency", Ref: func(c *Config) any { return &c.Run.Concurrency },
		Rule: between(1, 512), Unit: "conversations", Effect: EffectIdle, Example: "8",
		Meaning: "How many conversations of the agent are worked on at the same time.",
	},
	{
		Key: "run.timeout", Ref: func(c *Config) any { return &c.Run.Timeout },
		Rule: lasting(time.Second, 24*time.Hour), Effect: EffectMessage, Example: "30m",
		Meaning: "How long a turn may take, without the time it waits. A message whose turn takes longer becomes a dead letter.",
	},
	{
		Key: "queue.mode", Ref: func(c *Config) any { return &c.Queue.Mode },
		Rule: oneOf("followup", "collect", "steer", "interrupt"), Effect: EffectMessage, Example: "collect",
		Meaning: "What becomes of messages that arrive while their conversation is being worked on: `followup` gives each a turn of its own, `collect` answers them together in the next turn, `steer` adds them to the running one, `interrupt` ends that one. The command /queue chooses another mode for a conversation.",
	},
	{
		Key: "queue.debounce", Ref: func(c *Config) any { return &c.Queue.Debounce },
		Rule: lastingOrZero(10*time.Millisecond, 30*time.Second), Effect: EffectMessage, Example: "1s",
		Meaning: "How long a turn waits after the newest message of its conversation, so that messages which come quickly after each other are there together; ten times as long at most.",
	},
	{
		Key: "queue.cap", Ref: func(c *Config) any { return &c.Queue.Cap },
		Rule: between(1, 1000), Unit: "messages", Effect: EffectMessage, Example: "50",
		Meaning: "How many messages of one person may wait in a conversation of a chat platform. What programs push is not counted; inbox.max_per_peer bounds it.",
	},
	{
		Key: "queue.drop", Ref: func(c *Config) any { return &c.Queue.Drop },
		Rule: oneOf(DropSummarize, DropOld, DropNew), Effect: EffectMessage, Example: DropOld,
		Meaning: "What becomes of more than queue.cap: `summarize` puts the first 160 characters of each of the oldest before the model, `old` leaves them out and says how many, `new` refuses the newest.",
	},
	{
		Key: "mcp.use", Ref: func(c *Config) any { return &c.MCP.Use },
		Rule: servers(), Effect: EffectMessage, Example: "[github]",
		Meaning: "The MCP servers whose tools the profile allows as well; they are those of mcp.servers in theclaw.yaml. Every other list of tools still decides, and the owner approves each tool: see `agentctl mcp`.",
	},
	{
		Key: "sandbox.mode", Ref: func(c *Config) any { return &c.Sandbox.Mode },
		Rule: oneOf(SandboxOff, SandboxNonMain, SandboxAll, olderRequired, olderReduced), Effect: EffectMessage, Example: SandboxNonMain,
		Meaning: "Which conversations have their programs in a sandbox: all, those other than the main one (`non-main`), or none. Outside of it programs run as the user of the services, and tools.exec decides which. `required` and `reduced` are older words for all with that sandbox.level.",
	},
	{
		Key: "sandbox.level", Ref: func(c *Config) any { return &c.Sandbox.Level },
		Rule: oneOf(levelRequired, levelReduced), Effect: EffectMessage, Example: levelReduced,
		Meaning: "How programs in the sandbox are separated from the host. With `required` nothing runs where no complete sandbox is available; `reduced` then uses Landlock and seccomp alone.",
	},
	{
		Key: "sandbox.scope", Ref: func(c *Config) any { return &c.Sandbox.Scope },
		Rule: oneOf(ScopeSession, ScopeAgent, ScopeShared), Effect: EffectMessage, Example: ScopeSession,
		Meaning: "Which conversations have the same scratch directory, where sandbox.workspace_access is `none` or `ro`: each its own (`session`), those of one agent, or those of all agents with this value (`shared`).",
	},
	{
		Key: "sandbox.workspace_access", Ref: func(c *Config) any { return &c.Sandbox.WorkspaceAccess },
		Rule: oneOf(AccessNone, AccessReadOnly, AccessReadWrite), Effect: EffectMessage, Example: AccessReadOnly,
		Meaning: "What conversations in the sandbox can do with the working directory of the agent. With `none` their tools work in a scratch directory below `sandboxes` of the home and do not see it; with `ro` they read it, write, edit and apply_patch are denied, and programs write into the scratch directory, which is TMPDIR; with `rw` they work in it.",
	},
	{
		Key: "sandbox.network", Ref: func(c *Config) any { return &c.Sandbox.Network },
		Rule: network(), Effect: EffectMessage, Example: "[git.example.org, '*.example.net']",
		Meaning: "What programs in the sandbox reach: nothing (`off`), the network of the host (`open`), or some hosts by HTTP and HTTPS. A host is a name, `*.` and a name for all that is below it, or one with a port other than 80 and 443; addresses that are not public are refused, except for those of tools.http.allow_private. `false` and `true` are read as `off` and `open`.",
	},
	{
		Key: "sandbox.driver", Ref: func(c *Config) any { return &c.Sandbox.Driver },
		Rule: oneOf(driverAuto, driverDocker), Effect: EffectMessage, Example: driverDocker,
		Meaning: "What makes the sandbox of programs: the runner (`auto`), or the program docker on its machine, with the settings below sandbox.docker. MCP servers and the programs of tools.programs are in the sandbox of the runner in both cases.",
	},
	{
		Key: "sandbox.docker.image", Ref: func(c *Config) any { return &c.Sandbox.Docker.Image },
		Rule: form(image, "the name of an image"), Effect: EffectMessage, Example: "debian:bookworm-slim",
		Meaning: "The image of the container. It needs `sh` and `setsid`, and is not pulled: `docker pull` gets it.",
	},
	{
		Key: "sandbox.docker.container_prefix", Ref: func(c *Config) any { return &c.Sandbox.Docker.ContainerPrefix },
		Rule: matching(prefixRule, "letters, digits, _, . and -, at most 64"), Effect: EffectMessage, Example: "theclaw-test-",
		Meaning: "The beginning of the names of containers. Two homes that use the same docker need different ones.",
	},
	{
		Key: "sandbox.docker.workdir", Ref: func(c *Config) any { return &c.Sandbox.Docker.Workdir },
		Rule: form(containerDir, "an absolute directory, without : and ,"), Effect: EffectMessage, Example: "/work",
		Meaning: "Where programs see the working directory. File tools take paths below it too. With sandbox.workspace_access `ro` the scratch directory is at the same path with `-scratch` behind it.",
	},
	{
		Key: "sandbox.docker.read_only_root", Ref: func(c *Config) any { return &c.Sandbox.Docker.ReadOnlyRoot },
		Effect: EffectMessage, Example: "false",
		Meaning: "Whether programs can write only into the mounted directories and into /tmp, /var/tmp and /run, which are in memory.",
	},
	{
		Key: "sandbox.docker.network", Ref: func(c *Config) any { return &c.Sandbox.Docker.Network },
		Rule: matching(networkRule, "none, bridge, or the name of a network of docker"), Effect: EffectMessage, Example: "bridge",
		Meaning: "The network of the container. With `none`, sandbox.network `open` means `bridge`; with any other, commands have the network and tools.exec decides on them. A list of hosts in sandbox.network is refused with docker.",
	},
	{
		Key: "sandbox.docker.user", Ref: func(c *Config) any { return &c.Sandbox.Docker.User },
		Rule: orNone(userRule, "USER or USER:GROUP, or empty for the owner of the working directory"), Effect: EffectMessage, Example: "1000:1000",
		Meaning: "The user of the programs. Another one than the owner of the working directory may not be able to write there.",
	},
	{
		Key: "sandbox.docker.cap_drop", Ref: func(c *Config) any { return &c.Sandbox.Docker.CapDrop },
		Rule: capabilities(), Effect: EffectMessage, Example: "[NET_RAW, MKNOD]",
		Meaning: "Capabilities that programs do not have.",
	},
	{
		Key: "sandbox.docker.env", Ref: func(c *Config) any { return &c.Sandbox.Docker.Env },
		Rule: variables(), Effect: EffectMessage, Example: "{LANG: C.UTF-8, MODE: test}",
		Meaning: "Variables of all programs, in place of the default. Those of the home and of the agent are merged by their names. Other users of the machine can read them.",
	},
	{
		Key: "sandbox.docker.memory", Ref: func(c *Config) any { return &c.Sandbox.Docker.Memory },
		Rule: orNone(memoryRule, "bytes, or a number with k, m or g, or empty for no limit"), Effect: EffectMessage, Example: "512m",
		Meaning: "The most memory of the container.",
	},
	{
		Key: "sandbox.docker.cpus", Ref: func(c *Config) any { return &c.Sandbox.Docker.CPUs },
		Rule: orNone(cpusRule, "a decimal number, or empty for no limit"), Effect: EffectMessage, Example: "1.5",
		Meaning: "How many processors the container may use.",
	},
	{
		Key: "sandbox.docker.seccomp_profile", Ref: func(c *Config) any { return &c.Sandbox.Docker.SeccompProfile },
		Rule: form(directory, "an absolute path, or empty for the profile of docker"), Effect: EffectMessage, Example: "/etc/theclaw/seccomp.json",
		Meaning: "A file on the machine of the runner with the system calls that programs may make.",
	},
	{
		Key: "sandbox.docker.apparmor_profile", Ref: func(c *Config) any { return &c.Sandbox.Docker.ApparmorProfile },
		Rule: orNone(profileRule, "a name, or empty for the profile of docker"), Effect: EffectMessage, Example: "theclaw-sandbox",
		Meaning: "The AppArmor profile of the container. `unconfined` is refused.",
	},
	{
		Key: "sandbox.docker.binds", Ref: func(c *Config) any { return &c.Sandbox.Docker.Binds }, Adds: true,
		Rule: binds(), Effect: EffectMessage, Example: "[/srv/data:/data:ro]",
		Meaning: "More files and directories of the machine of the runner for programs, which can change them without `:ro`. Those of the agent are added to those of the home. What holds, or is in, the home, /etc, /proc, /sys or the socket of docker is refused.",
	},
	{
		Key: "sandbox.docker.prune.idle", Ref: func(c *Config) any { return &c.Sandbox.Docker.Prune.Idle },
		Rule: lasting(time.Minute, 365*24*time.Hour), Effect: EffectMessage, Example: "2h",
		Meaning: "How long a container stays without a command. What is outside of the working directory is lost with it.",
	},
	{
		Key: "sandbox.docker.prune.max_age", Ref: func(c *Config) any { return &c.Sandbox.Docker.Prune.MaxAge },
		Rule: lasting(time.Minute, 365*24*time.Hour), Effect: EffectMessage, Example: "24h",
		Meaning: "How long a container stays at most. One in which a command runs stays until that has ended.",
	},
	{
		Key: "sandbox.browser.enabled", Ref: func(c *Config) any { return &c.Sandbox.Browser.Enabled },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether the sandbox has a browser in a container of its own. The settings of the browser are checked and shown; the container is not started yet.",
	},
	{
		Key: "sandbox.browser.image", Ref: func(c *Config) any { return &c.Sandbox.Browser.Image },
		Rule: form(image, "the name of an image"), Effect: EffectMessage, Example: "browser:1",
		Meaning: "The image of the browser.",
	},
	{
		Key: "sandbox.browser.cdp_port", Ref: func(c *Config) any { return &c.Sandbox.Browser.CDPPort },
		Rule: between(1, 65535), Unit: "port", Effect: EffectMessage, Example: "9333",
		Meaning: "The port on which the browser takes commands.",
	},
	{
		Key: "sandbox.browser.vnc_port", Ref: func(c *Config) any { return &c.Sandbox.Browser.VNCPort },
		Rule: between(1, 65535), Unit: "port", Effect: EffectMessage, Example: "5901",
		Meaning: "The port on which the browser shows its screen.",
	},
	{
		Key: "sandbox.browser.headless", Ref: func(c *Config) any { return &c.Sandbox.Browser.Headless },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether the browser has no screen.",
	},
	{
		Key: "sandbox.browser.allow_host_control", Ref: func(c *Config) any { return &c.Sandbox.Browser.AllowHostControl },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether programs in the sandbox may use a browser of the host.",
	},
	{
		Key: "approvals", Ref: func(c *Config) any { return &c.Approvals },
		Rule: oneOf("none", "ask"), Effect: EffectMessage, Example: "ask",
		Meaning: "The older form of tools.exec.security and tools.exec.ask: `none` means full and off, `ask` means full and always. It cannot be with one of them in one place; of two layers the later one decides.",
	},
	{
		Key: "tools.profile", Ref: func(c *Config) any { return &c.Tools.Profile },
		Rule: oneOf(toolpolicy.Profiles()...), Effect: EffectMessage, Example: toolpolicy.Coding,
		Meaning: "The tools that the lists below begin with. `theclaw` is the one tool that runs commands, `minimal` the status of the session, `coding` files, commands, sessions and memory, `messaging` messages and sessions, `agentclaw` what an assistant of agentclaw has, and `full` everything. That of the agent replaces that of the home.",
	},
	{
		Key: "tools.allow", Ref: func(c *Config) any { return &c.Tools.Allow },
		Rule: tools(), Effect: EffectMessage, Example: "[group:fs, exec]",
		Meaning: "The only tools that are allowed. The list of the home and that of the agent are separate: a tool must be allowed by both, and by the profile.",
	},
	{
		Key: "tools.also_allow", Ref: func(c *Config) any { return &c.Tools.AlsoAllow },
		Rule: tools(), Effect: EffectMessage, Example: "[web_fetch]",
		Meaning: "Tools that are allowed besides those of the profile. The list of the agent replaces that of the home. It cannot be with tools.allow in one place.",
	},
	{
		Key: "tools.deny", Ref: func(c *Config) any { return &c.Tools.Deny },
		Rule: tools(), Effect: EffectMessage, Example: "[exec]",
		Meaning: "Tools that are not allowed, whatever else allows them. The lists of the home and of the agent both hold.",
	},
	{
		Key: "tools.sandbox.tools.allow", Ref: func(c *Config) any { return &c.Tools.Sandbox.Allow },
		Rule: tools(), Effect: EffectMessage, Example: "[exec, group:fs]",
		Meaning: "The only tools of conversations in the sandbox, besides what all other lists allow; an empty list allows all. That of the agent replaces that of the home.",
	},
	{
		Key: "tools.sandbox.tools.deny", Ref: func(c *Config) any { return &c.Tools.Sandbox.Deny },
		Rule: tools(), Effect: EffectMessage, Example: "[browser]",
		Meaning: "Tools that conversations in the sandbox do not have. That of the agent replaces that of the home.",
	},
	{
		Key: "tools.parallel", Ref: func(c *Config) any { return &c.Tools.Parallel },
		Rule: between(1, 16), Unit: "calls", Effect: EffectMessage, Example: "4",
		Meaning: "How many adjacent calls of class read run together.",
	},
	{
		Key: "tools.result_chars", Ref: func(c *Config) any { return &c.Tools.ResultChars },
		Rule: between(2000, 200_000), Unit: "characters", Effect: EffectMessage, Example: "60000",
		Meaning: "How many characters of the result of a call the model reads, whatever limit its tool has: of a longer one the first 60 % and the last 40 %. The complete text is in `workdir/.output`.",
	},
	{
		Key: "tools.output_keep.age", Ref: func(c *Config) any { return &c.Tools.OutputKeep.Age },
		Rule: lasting(time.Hour, 365*24*time.Hour), Effect: EffectMessage, Example: "48h",
		Meaning: "How long `workdir/.output` keeps complete results and the previous contents of files, which `agentctl explain --diff` shows.",
	},
	{
		Key: "tools.output_keep.max_mib", Ref: func(c *Config) any { return &c.Tools.OutputKeep.MaxMiB },
		Rule: between(1, 100_000), Unit: "MiB", Effect: EffectMessage, Example: "1024",
		Meaning: "How much `workdir/.output` keeps of them; the oldest are removed.",
	},
	{
		Key: "tools.read.max_bytes", Ref: func(c *Config) any { return &c.Tools.Read.MaxBytes },
		Rule: between(1<<10, 1<<20), Unit: "bytes", Effect: EffectMessage, Example: "102400",
		Meaning: "How many bytes of a file one call of read shows.",
	},
	{
		Key: "tools.read.max_lines", Ref: func(c *Config) any { return &c.Tools.Read.MaxLines },
		Rule: between(100, 20_000), Unit: "lines", Effect: EffectMessage, Example: "5000",
		Meaning: "How many lines of a file one call of read shows.",
	},
	{
		Key: "tools.fs.skip", Ref: func(c *Config) any { return &c.Tools.FS.Ignore },
		Rule: names(), Effect: EffectMessage, Example: "[.git, node_modules, .output, vendor]",
		Meaning: "Names of directories and files that grep, find and ls leave out, unless a call names them.",
	},
	{
		Key: "tools.presentation", Ref: func(c *Config) any { return &c.Tools.Presentation },
		Rule: oneOf(toolpolicy.Presentations()...), Effect: EffectMessage, Example: toolpolicy.Openclaw,
		Meaning: "The names under which the model sees the tools: the one for commands is bash_exec with `theclaw`, exec with `openclaw` and shell with `agentclaw`. A call by any of the names is understood.",
	},
	{
		Key: "tools.exec.timeout", Ref: func(c *Config) any { return &c.Tools.Exec.Timeout },
		Rule: lasting(time.Second, time.Hour), Effect: EffectMessage, Example: "60s",
		Meaning: "How long a command may run that a call names no time for.",
	},
	{
		Key: "tools.exec.yield", Ref: func(c *Config) any { return &c.Tools.Exec.Yield },
		Rule: lastingOrZero(time.Second, 10*time.Minute), Effect: EffectMessage, Example: "10s",
		Meaning: "A command that runs longer goes on in the background, when the model has the tool process and its call says nothing else; 0 lets none.",
	},
	{
		Key: "tools.exec.background.max", Ref: func(c *Config) any { return &c.Tools.Exec.Background.Max },
		Rule: between(0, 32), Unit: "processes", Effect: EffectMessage, Example: "4",
		Meaning: "How many processes the agent may have in the background; with 0 every command is waited for.",
	},
	{
		Key: "tools.exec.background.max_age", Ref: func(c *Config) any { return &c.Tools.Exec.Background.MaxAge },
		Rule: lasting(time.Minute, 24*time.Hour), Effect: EffectMessage, Example: "2h",
		Meaning: "How long a process may run in the background before it is ended.",
	},
	{
		Key: "tools.exec.background.notify", Ref: func(c *Config) any { return &c.Tools.Exec.Background.Notify },
		Effect: EffectMessage, Example: "false",
		Meaning: "Whether the agent gets a message when a process in the background has ended, unless the model has seen its end.",
	},
	{
		Key: "tools.exec.security", Ref: func(c *Config) any { return &c.Tools.Exec.Security },
		Rule: oneOf("deny", "allowlist", "full"), Effect: EffectMessage, Example: "allowlist",
		Meaning: "Which commands may run outside the sandbox (see sandbox.mode) or with the network (sandbox.network is `open`) without a person: none, those that the allow list of the agent (`agentctl approvals policy`) or tools.exec.safe_bins allows, or all. In the sandbox without the network nothing is refused or asked.",
	},
	{
		Key: "tools.exec.ask", Ref: func(c *Config) any { return &c.Tools.Exec.Ask },
		Rule: oneOf("off", "on-miss", "always"), Effect: EffectMessage, Example: "on-miss",
		Meaning: "When a person is asked about such a command: never, when security is `allowlist` and the lists do not allow it, or always. With `deny` there is no question.",
	},
	{
		Key: "tools.exec.ask_fallback", Ref: func(c *Config) any { return &c.Tools.Exec.AskFallback },
		Rule: oneOf("deny", "allowlist", "full"), Effect: EffectMessage, Example: "allowlist",
		Meaning: "What decides, in the place of tools.exec.security, when a question got no answer in tools.approval_timeout.",
	},
	{
		Key: "tools.exec.safe_bins", Ref: func(c *Config) any { return &c.Tools.Exec.SafeBins },
		Rule: programs(), Effect: EffectMessage, Example: "[jq, wc]",
		Meaning: "Programs that the security `allowlist` lets run without an entry of the allow list, as long as no argument is a path or a file.",
	},
	{
		Key: "tools.elevated.enabled", Ref: func(c *Config) any { return &c.Tools.Elevated.Enabled },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether commands may ask to run outside the sandbox (argument `elevated`), for messages of people in tools.elevated.allow_from.",
	},
	{
		Key: "tools.elevated.default", Ref: func(c *Config) any { return &c.Tools.Elevated.Default },
		Rule: oneOf("off", "on", "ask", "full"), Effect: EffectMessage, Example: "ask",
		Meaning: "What decides on such a command in a conversation that has no other mode: `off` refuses it, with `on` and `ask` tools.exec.security and tools.exec.ask decide, `full` asks nothing but what tools.external_guard says.",
	},
	{
		Key: "tools.elevated.allow_from", Ref: func(c *Config) any { return &c.Tools.Elevated.AllowFrom },
		Rule: people(), Effect: EffectMessage, Example: "[owners]",
		Meaning: "For whose messages commands may run outside the sandbox. It is judged by the author of the message, never by its text.",
	},
	{
		Key: "tools.external_guard", Ref: func(c *Config) any { return &c.Tools.ExternalGuard },
		Rule: guards(), Effect: EffectMessage, Example: "[host, mcp]",
		Meaning: "What a person is asked for when the model was shown a web page, a result of an MCP server or another text from outside in the same turn, or the message is not from an owner, whatever lists and modes allow: commands outside the sandbox (`host`), calls of MCP servers with an effect (`mcp`).",
	},
	{
		Key: "tools.approval_timeout", Ref: func(c *Config) any { return &c.Tools.ApprovalTimeout },
		Rule: lasting(time.Minute, 24*time.Hour), Effect: EffectNow, Example: "30m",
		Meaning: "How long a question for an approval waits for an answer. After a yes the command may begin within ten more minutes.",
	},
	{
		Key: "tools.approval_notify", Ref: func(c *Config) any { return &c.Tools.ApprovalNotify },
		Rule: oneOf(NotifyOwners, NotifyOrigin, NotifyNone), Effect: EffectNow, Example: NotifyOrigin,
		Meaning: "Where what waits for an approval is shown in chats: in the direct chats of the owners, in the chat of the message if an owner wrote it (`origin`; else as `owners`), or nowhere. agentctl approvals lists it in any case.",
	},
	{
		Key: "tools.web_fetch.max_chars", Ref: func(c *Config) any { return &c.Tools.WebFetch.MaxChars },
		Rule: between(1000, 200_000), Unit: "characters", Effect: EffectMessage, Example: "20000",
		Meaning: "How many characters of a page the model gets from web_fetch, unless its call names another number. tools.result_chars holds as well.",
	},
	{
		Key: "tools.web_fetch.timeout", Ref: func(c *Config) any { return &c.Tools.WebFetch.Timeout },
		Rule: lasting(time.Second, 300*time.Second), Effect: EffectMessage, Example: "30s",
		Meaning: "How long one attempt of web_fetch may take, redirects and body included.",
	},
	{
		Key: "tools.web_fetch.allow_private", Ref: func(c *Config) any { return &c.Tools.WebFetch.AllowPrivate },
		Rule: networks(), Effect: EffectMessage, OfHome: true, Example: "[192.168.7.0/24]",
		Meaning: "Addresses that web_fetch may reach although they are not public. Everything that the agent can be talked into is then possible there.",
	},
	{
		Key: "tools.web_search.provider", Ref: func(c *Config) any { return &c.Tools.WebSearch.Provider },
		Rule: oneOf(searchOff, searchAuto, "brave", "searxng", "duckduckgo"), Effect: EffectMessage, Example: "searxng",
		Meaning: "Which provider web_search asks. `auto` is brave where its key is set, else searxng where its address is, else duckduckgo; with `off` there is no such tool.",
	},
	{
		Key: "tools.web_search.url", Ref: func(c *Config) any { return &c.Tools.WebSearch.URL },
		Rule: webAddress(), Effect: EffectMessage, Example: "http://searx.lan:8888",
		Meaning: "The address of the provider, which searxng needs. It may be a private one.",
	},
	{
		Key: "tools.web_search.key", Ref: func(c *Config) any { return &c.Tools.WebSearch.Key },
		Rule: secretReference(), Effect: EffectMessage, Example: "file:/run/secrets/brave",
		Meaning: "Where the runner finds the key of brave.",
	},
	{
		Key: "tools.web_search.results", Ref: func(c *Config) any { return &c.Tools.WebSearch.Results },
		Rule: between(1, 20), Unit: "results", Effect: EffectMessage, Example: "10",
		Meaning: "How many results web_search returns, unless its call names another number.",
	},
	{
		Key: "tools.http.max_chars", Ref: func(c *Config) any { return &c.Tools.HTTP.MaxChars },
		Rule: between(1000, 200_000), Unit: "characters", Effect: EffectMessage, Example: "20000",
		Meaning: "How many characters of a body the model gets from http_request. tools.result_chars holds as well.",
	},
	{
		Key: "tools.http.timeout", Ref: func(c *Config) any { return &c.Tools.HTTP.Timeout },
		Rule: lasting(time.Second, 300*time.Second), Effect: EffectMessage, Example: "60s",
		Meaning: "How long one attempt of http_request may take, redirects and body included.",
	},
	{
		Key: "tools.http.allow_private", Ref: func(c *Config) any { return &c.Tools.HTTP.AllowPrivate },
		Rule: networks(), Effect: EffectMessage, OfHome: true, Example: "[192.168.7.0/24]",
		Meaning: "Addresses that http_request, and programs with hosts in sandbox.network, may reach although they are not public. Everything that the agent can be talked into is then possible there.",
	},
	{
		Key: "tools.question_timeout", Ref: func(c *Config) any { return &c.Tools.QuestionTimeout },
		Rule: lasting(time.Minute, 7*24*time.Hour), Effect: EffectMessage, Example: "30m",
		Meaning: "How long a question of ask_user waits for an answer. Without one the model reads that there was none, and goes on.",
	},
	{
		Key: "memory.share", Ref: func(c *Config) any { return &c.Memory.Share },
		Effect: EffectMessage, Example: "true",
		Meaning: "Whether the memory of the agent, which every conversation sees, may contain what its conversations were about. Otherwise it is made from records that contain no words of peers.",
	},
	{
		Key: "on_error.notify_peer", Ref: func(c *Config) any { return &c.OnError.NotifyPeer },
		Effect: EffectMessage, Example: "false",
		Meaning: "Whether the author of a message that became a dead letter is notified. `auto` notifies a person in a direct chat of a chat platform, and not again shortly after.",
	},
	{
		Key: "quota.messages_per_day", Ref: func(c *Config) any { return &c.Quota.MessagesPerDay },
		Rule: between(0, 1_000_000_000), Unit: "messages", Effect: EffectNow, Example: "1000",
		Meaning: "How many messages the agent takes in a day of UTC; 0 is no limit.",
	},
	{
		Key: "quota.peer_messages_per_day", Ref: func(c *Config) any { return &c.Quota.PeerMessagesPerDay },
		Rule: between(0, 1_000_000_000), Unit: "messages", Effect: EffectNow, Example: "200",
		Meaning: "How many messages of one peer the agent takes in a day of UTC; 0 is no limit.",
	},
	{
		Key: "quota.tokens_per_day", Ref: func(c *Config) any { return &c.Quota.TokensPerDay },
		Rule: between(0, 1_000_000_000_000), Unit: "tokens", Effect: EffectNow, Example: "20000000",
		Meaning: "When the agent has used so many tokens in a day of UTC, it takes no message until the next day, so that one that works in a circle stops; 0 is no limit.",
	},
	{
		Key: "quota.peer_tokens_per_day", Ref: func(c *Config) any { return &c.Quota.PeerTokensPerDay },
		Rule: between(0, 1_000_000_000_000), Unit: "tokens", Effect: EffectNow, Example: "500000",
		Meaning: "When the messages of one peer have used so many tokens in a day of UTC, the agent takes no other from that peer until the next day; 0 is no limit.",
	},
	{
		Key: "quota.cents_per_day", Ref: func(c *Config) any { return &c.Quota.CentsPerDay },
		Rule: between(0, 1_000_000_000), Unit: "cents", Effect: EffectNow, Example: "500",
		Meaning: "When the agent has cost so much in a day of UTC, by the prices below `price`, it takes no message until the next day; 0 is no limit.",
	},
	{
		Key: "quota.peer_cents_per_day", Ref: func(c *Config) any { return &c.Quota.PeerCentsPerDay },
		Rule: between(0, 1_000_000_000), Unit: "cents", Effect: EffectNow, Example: "50",
		Meaning: "When the messages of one peer have cost so much in a day of UTC, by the prices below `price`, the agent takes no other from that peer until the next day; 0 is no limit.",
	},
	{
		Key: "quota.pair_per_minute", Ref: func(c *Config) any { return &c.Quota.PairPerMinute },
		Rule: between(1, 1_000_000), Unit: "messages", Effect: EffectNow, Example: "10",
		Meaning: "How many messages one other agent may send to this one in a minute.",
	},
	{
		Key: "price.input_cents", Ref: func(c *Config) any { return &c.Price.InputCents },
		Rule: between(0, 10_000_000), Unit: "cents for a million tokens", Effect: EffectNow, Example: "250",
		Meaning: "What a million input tokens cost, for the quotas in cents and for the cost in `reply.usage_footer: full`. A quota counts tokens of the cache of the provider at this price, too; a reply that used any shows no cost. `agentctl usage` does not use it: its prices are in providers.yaml.",
	},
	{
		Key: "price.output_cents", Ref: func(c *Config) any { return &c.Price.OutputCents },
		Rule: between(0, 10_000_000), Unit: "cents for a million tokens", Effect: EffectNow, Example: "1000",
		Meaning: "What a million output tokens cost, for the quotas in cents and for the cost in `reply.usage_footer: full`.",
	},
	{
		Key: "workdir.shared", Ref: func(c *Config) any { return &c.Workdir.Shared },
		Rule: form(directory, "an absolute directory, or empty"), Effect: EffectMessage, Example: "/srv/theclaw/workdirs",
		Meaning: "A directory that all runners have, such as a network file system. The working directory of the agent is then the directory below it that is named like the agent.",
	},
	{
		Key: "workdir.sync", Ref: func(c *Config) any { return &c.Workdir.Sync },
		Rule: oneOf("off", "snapshot"), Effect: EffectMessage, Example: "snapshot",
		Meaning: "Whether the registry keeps a copy of the working directory, so that runners on other machines continue with the same files.",
	},
	{
		Key: "workdir.max_mib", Ref: func(c *Config) any { return &c.Workdir.MaxMiB },
		Rule: between(1, 4096), Unit: "MiB", Effect: EffectMessage, Example: "256",
		Meaning: "The largest size of a snapshot of the working directory.",
	},
	{
		Key: "workdir.ignore", Ref: func(c *Config) any { return &c.Workdir.Ignore },
		Rule: form(patterns, "patterns such as *.tmp or build/out, separated by spaces, at most 1024 bytes"), Effect: EffectMessage, Example: "*.tmp node_modules",
		Meaning: "What is left out of a snapshot of the working directory.",
	},
}

// index finds a field, groups the keys that only hold others.
var index, groups = func() (map[string]*Field, map[string]bool) {
	at, in := map[string]*Field{}, map[string]bool{}
	for i := range fields {
		at[fields[i].Key] = &fields[i]
		for j, r := range fields[i].Key {
			if r == '.' {
				in[fields[i].Key[:j]] = true
			}
		}
	}
	return at, in
}()

// Fields returns the table of scalar keys in the order in which they are shown. It is not to
// be changed.
func Fields() []*Field {
	all := make([]*Field, len(fields))
	for i := range fields {
		all[i] = &fields[i]
	}
	return all
}

// Lookup returns the field of a dotted key, or nil.
func Lookup(key string) *Field { return index[key] }

// IsGroup reports whether a key only holds other keys, as retry does.
func IsGroup(key string) bool { return groups[key] }

// Groups returns the keys that only hold others.
func Groups() []string { return slices.Sorted(maps.Keys(groups)) }

// Keys returns every key in the order in which they are shown.
func Keys() []string {
	keys := make([]string, 0, len(fields)+2)
	for _, f := range fields {
		keys = append(keys, f.Key)
	}
	return append(keys, "outbound", "channels")
}

// A Rule is what a field may hold. The zero value refuses nothing.
type Rule struct {
	Words []string // the only values; nil: see the others
	// Low and High bound a number, or a duration in nanoseconds; both 0: there is no bound.
	Low, High int
	Zero      bool   // 0 is allowed, too
	Form      string // of a text, in words

	check func(any) string
}

// Check returns what is wrong with the value in c; empty: nothing is.
func (f *Field) Check(c *Config) string {
	if f.Rule.check == nil {
		return ""
	}
	return f.Rule.check(f.Ref(c))
}

const nameForm = "letters, digits and _.:@/+-, at most 128"

func form(check func(any) string, words string) Rule { return Rule{Form: words, check: check} }

func oneOf(words ...string) Rule {
	return Rule{Words: words, check: func(v any) string {
		if s := *v.(*string); !slices.Contains(words, s) {
			return fmt.Sprintf("%q is not one of %s", Clip(s), strings.Join(words, ", "))
		}
		return ""
	}}
}

// tools is the rule of a list of tools.
func tools() Rule {
	return Rule{Form: fmt.Sprintf("names of tools, groups such as group:fs, patterns with *; at most %d", toolpolicy.MaxEntries), check: func(v any) string {
		return toolpolicy.Check(*v.(*[]string))
	}}
}

// MaxServers is how many MCP servers a home has, and an agent uses.
const MaxServers = 32

// servers is the rule of a list of MCP servers. A server that the home does not have is no problem: it may
// come later.
func servers() Rule {
	return Rule{Form: fmt.Sprintf("names of MCP servers, at most %d", MaxServers), check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > MaxServers {
			return fmt.Sprintf("%d servers, and %d are the most", len(list), MaxServers)
		}
		for _, s := range list {
			if !IsServer(s) {
				return fmt.Sprintf("%q is not the name of a server (%s)", Clip(s), ServerForm)
			}
		}
		return ""
	}}
}

// The providers of web_search that are none: no search, and what the settings have a key or an address for.
const (
	searchOff  = "off"
	searchAuto = "auto"
)

// webAddress is the rule of an address of a server; empty is none.
func webAddress() Rule {
	return Rule{Form: "an http or https address", check: func(v any) string {
		s := *v.(*string)
		if u, err := url.Parse(s); s != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
			return fmt.Sprintf("%q is not an address such as http://searx.lan:8888, without user and password", Clip(s))
		}
		return ""
	}}
}

// secretReference is the rule of a reference to a secret.
func secretReference() Rule {
	return Rule{Form: "env:NAME or file:PATH", check: func(v any) string {
		if !reference.Is(*v.(*string)) {
			return "must be env:NAME or file:PATH, so that the value is not in this file"
		}
		return ""
	}}
}

// names is the rule of a list of names of files.
func names() Rule {
	return Rule{Form: "names without slashes, at most 50", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 50 {
			return fmt.Sprintf("%d names, and 50 are the most", len(list))
		}
		for _, s := range list {
			if s == "" || len(s) > 255 || strings.ContainsAny(s, "/\x00") {
				return fmt.Sprintf("%q is not the name of a file or directory", Clip(s))
			}
		}
		return ""
	}}
}

// programs is the rule of a list of programs.
func programs() Rule {
	return Rule{Form: "names of programs without /, at most 100", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 100 {
			return fmt.Sprintf("%d programs, and 100 are the most", len(list))
		}
		for _, s := range list {
			if !nameRule().MatchString(s) || strings.Contains(s, "/") {
				return fmt.Sprintf("%q is not the name of a program", Clip(s))
			}
		}
		return ""
	}}
}

// people is the rule of a list of people.
func people() Rule {
	return Rule{Form: "`owners`, and type:peer such as telegram:1207, at most 100", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 100 {
			return fmt.Sprintf("%d people, and 100 are the most", len(list))
		}
		for _, s := range list {
			if kind, peer, ok := strings.Cut(s, ":"); s != FromOwners && (!ok || kind == "" || peer == "" || strings.Contains(peer, ":") || len(s) > 256) {
				return fmt.Sprintf("%q is neither owners nor a person; write type:peer, for example telegram:1207", Clip(s))
			}
		}
		return ""
	}}
}

// guards is the rule of a list of what is guarded.
func guards() Rule {
	return Rule{Form: "`host`, `mcp`, or both", check: func(v any) string {
		for _, s := range *v.(*[]string) {
			if s != GuardHost && s != GuardMCP {
				return fmt.Sprintf("%q is not one of %s, %s", Clip(s), GuardHost, GuardMCP)
			}
		}
		return ""
	}}
}

// networks is the rule of a list of addresses in CIDR form.
func networks() Rule {
	return Rule{Form: "addresses such as 192.168.7.0/24, at most 50", check: func(v any) string {
		list := *v.(*[]string)
		if len(list) > 50 {
			return fmt.Sprintf("%d addresses, and 50 are the most", len(list))
		}
		for _, s := range list {
			if _, err := netip.ParsePrefix(s); err != nil {
				return fmt.Sprintf("%q is not an address such as 192.168.7.0/24 or 127.0.0.1/32", Clip(s))
			}
		}
		return ""
	}}
}

func between(low, high int) Rule {
	return Rule{Low: low, High: high, check: func(v any) string {
		if n := *v.(*int); n < low || n > high {
			return fmt.Sprintf("%d is not between %d and %d", n, low, high)
		}
		return ""
	}}
}

func orZero(low, high int) Rule {
	return Rule{Low: low, High: high, Zero: true, check: func(v any) string {
		if n := *v.(*int); n != 0 && (n < low || n > high) {
			return fmt.Sprintf("%d is neither 0 nor between %d and %d", n, low, high)
		}
		return ""
	}}
}

func lasting(low, high time.Duration) Rule {
	return Rule{Low: int(low), High: int(high), check: func(v any) string {
		if d := *v.(*time.Duration); d < low || d > high {
			return fmt.Sprintf("%s is not between %s and %s", Duration(d), Duration(low), Duration(high))
		}
		return ""
	}}
}

// lastingOrZero is the rule of a duration that 0 turns off.
func lastingOrZero(low, high time.Duration) Rule {
	return Rule{Low: int(low), High: int(high), Zero: true, check: func(v any) string {
		if d := *v.(*time.Duration); d != 0 && (d < low || d > high) {
			return fmt.Sprintf("%s is neither 0 nor between %s and %s", Duration(d), Duration(low), Duration(high))
		}
		return ""
	}}
}

// leastChars is the shortest message a reply is cut into, and mostBlock the longest block.
const (
	leastChars = 64
	mostBlock  = 20_000
)

var (
	idRule     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`) })
	serverRule = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	nameRule   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,127}$`) })
)

func agentID(v any) string {
	if s := *v.(*string); !idRule().MatchString(s) {
		return fmt.Sprintf("%q is not an agent id (lower-case letters, digits, _ and -, at most 64, starting with a letter or digit)", Clip(s))
	}
	return ""
}

func name(v any) string {
	if s := *v.(*string); !nameRule().MatchString(s) {
		return fmt.Sprintf("%q is not a name (letters, digits and _.:@/+-, at most 128)", Clip(s))
	}
	return ""
}

func line(v any) string {
	if s := *v.(*string); s == "" || len(s) > 1024 || strings.ContainsFunc(s, unicode.IsControl) {
		return "must be one line of 1 to 1024 bytes"
	}
	return ""
}

func directory(v any) string {
	if s := *v.(*string); s != "" && (!path.IsAbs(s) || line(v) != "") {
		return "must be an absolute directory, or nothing"
	}
	return ""
}

func patterns(v any) string {
	for p := range strings.FieldsSeq(*v.(*string)) {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Sprintf("%q is not a pattern such as *.tmp or build/out", Clip(p))
		}
	}
	if s := *v.(*string); s != "" && line(v) != "" {
		return line(v)
	}
	return ""
}

func mainKey(v any) string {
	if s := *v.(*string); !sessionkey.IsMainKey(s) {
		return fmt.Sprintf("%q is not a main key (lower-case letters, digits, _, . and -, and not a word with a meaning in session keys)", Clip(s))
	}
	return ""
}

// clockRule is a time of day; 24:00 is not one.
var clockRule = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

func clock(v any) string {
	if s := *v.(*string); !clockRule.MatchString(s) {
		return fmt.Sprintf("%q is not a time of day such as 04:00", Clip(s))
	}
	return ""
}

func timezone(v any) string {
	s := *v.(*string)
	if s == "" {
		return ""
	}
	// Local is a name for LoadLocation alone; the host's zone has the empty name here.
	if _, err := time.LoadLocation(s); err != nil || s == "Local" {
		return fmt.Sprintf("%q is not a time zone that this host knows, such as Europe/Berlin", Clip(s))
	}
	return ""
}

// IsID reports whether s may name an agent or a channel.
func IsID(s string) bool { return idRule().MatchString(s) }

// ServerForm is the form of the name of an MCP server, in words. No name is the beginning of the tools of another
// server, since one `-` becomes one `_` in the names of tools, which have `__` behind that of the server.
const ServerForm = "words of lower-case letters and digits with one - between them, at most 20 characters"

// IsServer reports whether s may name an MCP server.
func IsServer(s string) bool { return len(s) <= 20 && serverRule.MatchString(s) }

// IsName reports whether s may name a provider, a model or a way out.
func IsName(s string) bool { return nameRule().MatchString(s) }

// IsLine returns what is wrong with s as one line of text.
func IsLine(s string) string { return line(&s) }

// Clip keeps a value short enough for a message.
func Clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
