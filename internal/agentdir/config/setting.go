package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/toolpolicy"
)

// A Setting is what a person may know of one key, of config.yaml or of theclaw.yaml.
type Setting struct {
	Key string
	// Agent and Home report in which file it may be: the config.yaml of an agent, and
	// theclaw.yaml. A key of both is at the top of theclaw.yaml or below agents.defaults, and
	// in an entry of agents.list.
	Agent, Home bool
	Type        string   // one of the constants below
	Values      []string // the only values, where there is a fixed set
	Limits      string   // in words; empty: none but that of the type
	Unit        string
	Default     string // as it is shown; empty: there is none
	Effect      Effect
	Example     string // a value as it is typed
	Meaning     string
}

// The types of a [Setting].
const (
	TypeText     = "text"
	TypeNumber   = "number"
	TypeDuration = "duration"
	TypeBoolean  = "boolean"
	TypeChoice   = "choice"
	TypeList     = "list"
	TypeMap      = "map"
)

// ChannelName stands for the name of a channel in the keys of [Settings], AccountName for
// that of an account of the home.
const (
	ChannelName = "NAME"
	AccountName = "ACCOUNT"
)

// lists are the keys of config.yaml that are not of one value: [Outbound] and [Channel].
var lists = []Setting{
	{
		Key: "model", Agent: true, Home: true, Type: TypeText, Limits: "PROVIDER/MODEL, or a mapping of primary and fallbacks", Effect: EffectMessage,
		Example: "anthropic/claude-sonnet-4-5",
		Meaning: "The model with its provider. It sets pai.provider and pai.model; a text without a slash sets pai.model alone.",
	},
	{
		Key: "model.primary", Agent: true, Home: true, Type: TypeText, Limits: "PROVIDER/MODEL", Effect: EffectMessage,
		Example: "anthropic/claude-sonnet-4-5",
		Meaning: "The same as a text for model.",
	},
	{
		Key: "model.fallbacks", Agent: true, Home: true, Type: TypeList, Limits: "at most 8 of PROVIDER/MODEL", Effect: EffectMessage,
		Example: "[openai/gpt-5]",
		Meaning: "The models to use in place of the first. The list is checked and shown by `config effective`; the runner does not use it yet.",
	},
	{
		Key: ByProvider + "PROVIDER", Agent: true, Home: true, Type: TypeMap, Limits: "PROVIDER or PROVIDER/MODEL", Effect: EffectMessage,
		Example: "{deny: [group:web]}",
		Meaning: "Further limits for the tools while the model is of this provider, or is this model: the entry of the model counts, else that of its provider. The lists of the home and of the agent both hold, and the profile of the agent replaces that of the home.",
	},
	{
		Key: ByProvider + "PROVIDER.profile", Agent: true, Home: true, Type: TypeChoice, Values: toolpolicy.Profiles(), Effect: EffectMessage,
		Example: toolpolicy.Coding,
		Meaning: "A profile that limits the tools further; none does where no entry has one.",
	},
	{
		Key: ByProvider + "PROVIDER.allow", Agent: true, Home: true, Type: TypeList, Limits: tools().Form, Effect: EffectMessage,
		Example: "[group:fs, exec]",
		Meaning: "The only tools that are allowed with the model.",
	},
	{
		Key: ByProvider + "PROVIDER.also_allow", Agent: true, Home: true, Type: TypeList, Limits: tools().Form, Effect: EffectMessage,
		Example: "[web_fetch]",
		Meaning: "What the profile of the entry allows besides its own tools; not together with allow.",
	},
	{
		Key: ByProvider + "PROVIDER.deny", Agent: true, Home: true, Type: TypeList, Limits: tools().Form, Effect: EffectMessage,
		Example: "[group:web]",
		Meaning: "Tools that are not allowed with the model.",
	},
	{
		Key: "memory_search", Agent: true, Home: true, Type: TypeMap, Limits: "a mapping, merged key by key over the layers", Effect: EffectMessage,
		Example: "{enabled: true}",
		Meaning: "The settings of the search in memory. They are merged and shown by `config effective`; nothing uses them yet.",
	},
	{
		Key: "outbound", Agent: true, Home: true, Type: TypeList, Default: `[{thread_pattern: '**', via: xgw}]`, Effect: EffectNow,
		Example: `[{thread_pattern: "peers/**", via: xgw}]`,
		Meaning: "Through which channel the replies of a conversation are sent: the first entry whose pattern matches decides, and a conversation that none matches has no delivery. `[]` sends nothing to the outside. Replies to other agents and to the console do not depend on it.",
	},
	{
		Key: "outbound[].thread_pattern", Agent: true, Home: true, Type: TypeText, Limits: "a glob below threads/, at most 512 bytes", Effect: EffectNow,
		Example: "peers/**",
		Meaning: "The conversations of the entry: a glob below threads/, where `**` is any number of directories.",
	},
	{
		Key: "outbound[].via", Agent: true, Home: true, Type: TypeText, Limits: "a built-in channel or the name of an entry of channels", Effect: EffectNow,
		Example: "xgw",
		Meaning: "The channel: `xgw`, `internal`, `console`, or a name below channels.",
	},
	{
		Key: "channels.NAME", Agent: true, Home: true, Type: TypeMap, Limits: "a name of lower-case letters, digits, _ and -, and not that of a built-in channel", Effect: EffectNow,
		Example: "{type: webhook, url: https://example.org/replies, secret: env:HOOK_SECRET}",
		Meaning: "A channel of your own, which outbound can name. An entry of config.yaml replaces the complete entry of the same name in theclaw.yaml.",
	},
	{
		Key: "channels.NAME.type", Agent: true, Home: true, Type: TypeChoice, Values: []string{"webhook"}, Effect: EffectNow,
		Example: "webhook",
		Meaning: "What the channel is: a webhook is the only type.",
	},
	{
		Key: "channels.NAME.url", Agent: true, Home: true, Type: TypeText, Limits: "an https URL without a user; http only with allow_private", Effect: EffectNow,
		Example: "https://example.org/replies",
		Meaning: "The address to which a webhook posts the replies.",
	},
	{
		Key: "channels.NAME.secret", Agent: true, Home: true, Type: TypeText, Limits: "env:NAME or file:PATH", Effect: EffectNow,
		Example: "env:HOOK_SECRET",
		Meaning: "Where to find the key that signs what a webhook posts: an environment variable or a file of the deliverer, never the key itself.",
	},
	{
		Key: "channels.NAME.allow_private", Agent: true, Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "false", Effect: EffectNow,
		Example: "true",
		Meaning: "Whether a webhook may have a loopback or private address and plain http.",
	},
}

// homes are the keys of theclaw.yaml alone.
var homes = []Setting{
	{
		Key: "agents.defaults", Home: true, Type: TypeMap, Limits: "keys of config.yaml but agent_id, kind and inbox.path", Effect: EffectNow,
		Example: "{pai: {model: gpt-5}}",
		Meaning: "Settings of every agent of the home that does not set them itself. The keys may be at the top of the file instead, except channels; a key in both places is refused. A change is in force when a change of the same key in config.yaml would be.",
	},
	{
		Key: "defaults", Home: true, Type: TypeMap, Limits: "as agents.defaults", Effect: EffectNow,
		Example: "{pai: {model: gpt-5}}",
		Meaning: "Another name of agents.defaults. A file has one of the two.",
	},
	{
		Key: "workspace", Home: true, Type: TypeText, Limits: "an absolute directory, or one below ~/", Effect: EffectMessage,
		Example: "/srv/agents/main",
		Meaning: "The working directory of the default agent, where its entry in agents.list has none. It may be below agents.defaults.",
	},
	{
		Key: "agents.list", Home: true, Type: TypeList, Limits: "a list of agents, each with an id", Default: "[]", Effect: EffectNow,
		Example: "[{id: main, default: true}]",
		Meaning: "The agents of the home. An entry has the keys below and any key of config.yaml but agent_id, which takes precedence over agents.defaults and not over the config.yaml of the agent. An entry without a directory is created and started; removing an entry deletes nothing.",
	},
	{
		Key: "agents.list[].id", Home: true, Type: TypeText, Limits: "the id of an agent", Effect: EffectNow,
		Example: "main",
		Meaning: "The id of the agent; it is required.",
	},
	{
		Key: "agents.list[].default", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "false", Effect: EffectNow,
		Example: "true",
		Meaning: "Whether messages that no binding gives to an agent are for this one; at most one entry has it. Without one the first entry is the default agent, and without entries the agent `main`, else `admin`, else the first by id.",
	},
	{
		Key: "agents.list[].name", Home: true, Type: TypeText, Limits: "one line of at most 64 characters", Effect: EffectMessage,
		Example: "Ann's assistant",
		Meaning: "A name for people.",
	},
	{
		Key: "agents.list[].workspace", Home: true, Type: TypeText, Limits: "an absolute directory, or one below ~/", Effect: EffectMessage,
		Example: "/srv/agents/work",
		Meaning: "The working directory of the agent's tools. Without it the flavors theclaw and agentclaw use the directory `workdir` of the agent, and openclaw `workspace` of the home for the default agent and `workspace-ID` for others.",
	},
	{
		Key: "agents.list[].agent_dir", Home: true, Type: TypeText, Limits: "an absolute directory", Effect: EffectNever,
		Example: "/srv/agents/work",
		Meaning: "The directory of the agent. Only the one below `agents` of the home is possible; another one is refused.",
	},
	{
		Key: "agents.list[].identity", Home: true, Type: TypeMap, Limits: "name, theme and emoji, each one line of at most 64 characters", Effect: EffectMessage,
		Example: "{name: Max, theme: calm, emoji: \"*\"}",
		Meaning: "How the agent presents itself; it is shown by `agentctl list` and is in the prompt.",
	},
	{
		Key: "agents.list[].group_chat", Home: true, Type: TypeMap, Limits: "mention_patterns: at most 32 regular expressions (RE2) of at most 256 bytes; history_limit: 0 to 500", Effect: EffectMessage,
		Example: "{mention_patterns: [\"\\\\bmax\\\\b\"], history_limit: 20}",
		Meaning: "What mentions the agent in a group, and how many earlier messages precede one that does (50).",
	},
	{
		Key: "bindings", Home: true, Type: TypeList, Limits: "at most 10,000 of {agent_id, match: {channel, account_id, peer: {kind, id}, guild_id, team_id}}", Default: "[]", Effect: EffectNow,
		Example: "[{agent_id: main, match: {channel: telegram}}]",
		Meaning: "Which agent a message is for: the binding with the most specific match decides, and of equal ones the first. A match without account_id means the default account of its channel type, `*` any account.",
	},
	{
		Key: "owners", Home: true, Type: TypeList, Limits: "a list of type:peer", Default: "[]", Effect: EffectNow,
		Example: `["telegram:1207"]`,
		Meaning: "The people who may use every command and approve requests, in addition to those who were approved with `pair approve CODE --owner`. The prompts of their messages name them.",
	},
	{
		Key: "commands.enabled", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "true", Effect: EffectNow,
		Example: "false",
		Meaning: "Whether texts such as `/new` are commands on chat platforms; `false` makes them messages. The terminal chat has its own.",
	},
	{
		Key: "commands.allow", Home: true, Type: TypeMap, Limits: "a command and owners, allowed or none", Default: "as `/help` lists them", Effect: EffectNow,
		Example: "{approve: none}",
		Meaning: "Who may use a command: the owners, all who may write to the agent, or no one. With `approve: none` no approval is given in a chat.",
	},
	{
		Key: "channels.ACCOUNT", Home: true, Type: TypeMap, Limits: "a word of lower-case letters, digits, _, . and -", Effect: EffectNow,
		Example: "{type: telegram, dm: pairing}",
		Meaning: "An account of a chat platform. `channels` at the top of theclaw.yaml holds accounts; the channels of outbound are below agents.defaults or in config.yaml, and none may have the name of an account.",
	},
	{
		Key: "channels.ACCOUNT.type", Home: true, Type: TypeText, Limits: "the type of a channel", Effect: EffectNow,
		Example: "telegram",
		Meaning: "The type of the account; it is required.",
	},
	{
		Key: "channels.ACCOUNT.default", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "false", Effect: EffectNow,
		Example: "true",
		Meaning: "Whether a binding without account_id means this account of its type. Without a mark it means the first one in the file.",
	},
	{
		Key: "channels.ACCOUNT.enabled", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "true", Effect: EffectNow,
		Example: "false",
		Meaning: "Whether messages of the account are accepted.",
	},
	{
		Key: "channels.ACCOUNT.dm", Home: true, Type: TypeChoice, Values: []string{"pairing", "allowlist", "open", "off"}, Default: "pairing", Effect: EffectNow,
		Example: "allowlist",
		Meaning: "Who may write directly, besides owners and approved peers: `pairing` gives a stranger a code, `allowlist` accepts those of allow_from, `open` everybody, `off` none.",
	},
	{
		Key: "channels.ACCOUNT.allow_from", Home: true, Type: TypeList, Limits: "a list of ids of peers", Default: "[]", Effect: EffectNow,
		Example: `["1207"]`,
		Meaning: "The peers who may write directly.",
	},
	{
		Key: "channels.ACCOUNT.bots", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "false", Effect: EffectNow,
		Example: "true",
		Meaning: "Whether messages of bots count as those of people. Otherwise one starts no turn: in groups it is context, unless allow_from or groups.allow_from has the id of the bot. What two agents answer each other is bounded by rate alone. The account never answers itself.",
	},
	{
		Key: "channels.ACCOUNT.groups", Home: true, Type: TypeMap, Limits: "allow and allow_from: lists of ids; mode: mention, always or off", Effect: EffectNow,
		Example: `{allow: ["-100200"], mode: mention}`,
		Meaning: "The groups of the account: `allow` lists them (`*` is any), `allow_from` the senders in them, and `mode` says whether a message must mention the agent. Without `allow` no group is accepted.",
	},
	{
		Key: "channels.ACCOUNT.tools", Home: true, Type: TypeMap, Limits: "dm, group and channel, each with allow and deny, as below tools", Effect: EffectMessage,
		Example: `{group: {deny: ["group:runtime"]}}`,
		Meaning: "Further limits for the tools in conversations of the account: direct ones, groups and channels of the platform.",
	},
	{
		Key: "channels.ACCOUNT.url", Home: true, Type: TypeText, Limits: "an https URL without a user; http only with allow_private", Effect: EffectNow,
		Example: "https://example.org/replies",
		Meaning: "Where replies to messages of the account are posted to (type webhook). Without it they are not sent; the program that posted the message can wait for its reply.",
	},
	{
		Key: "channels.ACCOUNT.allow_private", Home: true, Type: TypeBoolean, Values: []string{"true", "false"}, Default: "false", Effect: EffectNow,
		Example: "true",
		Meaning: "Allow http:// and addresses that are not public in url.",
	},
	{
		Key: "channels.ACCOUNT.secret", Home: true, Type: TypeText, Limits: "env:NAME or file:PATH", Effect: EffectNow,
		Example: "env:SHOP_SECRET",
		Meaning: "Where to find the key of signatures: what is posted to the account must be signed with it, and what the account posts is. Without it only programs of this machine may post.",
	},
	{
		Key: "channels.ACCOUNT.token", Home: true, Type: TypeText, Limits: "env:NAME or file:PATH", Effect: EffectNow,
		Example: "env:TG_TOKEN",
		Meaning: "Where to find the token that the platform gave the account.",
	},
	{
		Key: "channels.ACCOUNT.app_token", Home: true, Type: TypeText, Limits: "env:NAME or file:PATH", Effect: EffectNow,
		Example: "env:SLACK_APP",
		Meaning: "Where to find the second token of a platform that has two (type slack).",
	},
	{
		Key: "channels.ACCOUNT.api", Home: true, Type: TypeText, Limits: "an https URL without a user; http only on this machine", Default: "the platform's", Effect: EffectNow,
		Example: "http://127.0.0.1:8081",
		Meaning: "The address of the platform, for a server of its protocol that runs elsewhere.",
	},
	{
		Key: "channels.ACCOUNT.plugin", Home: true, Type: TypeText, Limits: "unix:PATH, an absolute path of at most 107 bytes", Effect: EffectNow,
		Example: "unix:/run/theclaw/irc.sock",
		Meaning: "The socket of the program that connects the platform of the account (type plugin). The program must run as the user of the services.",
	},
	{
		Key: "channels.ACCOUNT.max_chars", Home: true, Type: TypeNumber, Unit: "characters", Limits: "64 to what its platform takes", Default: "what its platform takes", Effect: EffectNow,
		Example: "1000",
		Meaning: "The longest message that the account sends, counted as its platform does; a longer reply goes in parts. deliver.max_chars of the agent may be smaller.",
	},
	{
		Key: "channels.ACCOUNT.rate", Home: true, Type: TypeNumber, Unit: "messages a minute", Limits: "0 to 100000", Default: "60", Effect: EffectNow,
		Example: "300",
		Meaning: "How many messages that start a turn, and commands that are answered at once, the account takes a minute, and twice as many at once. Those beyond are refused, with one notice in 10 minutes to their conversation; a program that posts gets status 429. 0 takes any number.",
	},
	{
		Key: "channels.ACCOUNT.media_max_mib", Home: true, Type: TypeNumber, Unit: "MiB", Limits: "0 to 50", Default: "20", Effect: EffectNow,
		Example: "5",
		Meaning: "The largest attachment that is fetched. For a larger one the agent and the person get its name, its size and this limit. 0 fetches none.",
	},
	{
		Key: "channels.ACCOUNT.reply_to", Home: true, Type: TypeChoice, Values: []string{"off", "first", "all"}, Default: "first in groups, off in direct conversations", Effect: EffectNow,
		Example: "all",
		Meaning: "Which messages show the one that they answer: none, the first part or each part (types telegram, discord and plugin). Slack has only threads, and a reply is in the thread of its message.",
	},
	{
		Key: "channels.ACCOUNT.catchup", Home: true, Type: TypeDuration, Limits: "0 to 168h", Default: "24h", Effect: EffectNow,
		Example: "2h",
		Meaning: "How old a message that comes after an outage may be, when the account receives again, to be answered. Older ones become context of their conversation and start no turn.",
	},
	{
		Key: "channels.ACCOUNT.dm_history_limit", Home: true, Type: TypeNumber, Unit: "messages", Limits: "1 to 1000", Default: "50", Effect: EffectMessage,
		Example: "20",
		Meaning: "How many earlier messages of the person the prompt of a direct conversation has, each with what followed it. Where it is set it counts in the place of context.recent_messages; else that bounds the prompt as well. The window of the model bounds it in any case, and so does compaction.keep_tokens behind a digest. What is in no digest yet is digested before it leaves the prompt.",
	},
	{
		Key: "channels.ACCOUNT.dms", Home: true, Type: TypeMap, Limits: "at most 1000 ids of people, each with history_limit, 1 to 1000", Effect: EffectMessage,
		Example: `{"1207": {history_limit: 100}}`,
		Meaning: "Direct conversations with a limit of their own, which counts in the place of dm_history_limit.",
	},
	{
		Key: "gateway.http", Home: true, Type: TypeText, Limits: "ADDRESS:PORT of loopback, or off; another address with the two keys below", Default: "127.0.0.1:18789", Effect: EffectRestart,
		Example: "off",
		Meaning: "Where the gateway listens for HTTP; `off` listens nowhere. A port that is in use is reported, and everything else works.",
	},
	{
		Key: "gateway.public_url", Home: true, Type: TypeText, Limits: "https://HOST or https://HOST:PORT", Effect: EffectRestart,
		Example: "https://claw.example.org",
		Meaning: "The address of a proxy that ends TLS and passes requests on to the gateway. Requests may name its host, and the addresses of accounts are shown below it.",
	},
	{
		Key: "gateway.trusted_proxies", Home: true, Type: TypeList, Limits: "at most 64 ranges of addresses (CIDR)", Default: "[]", Effect: EffectRestart,
		Example: "[10.0.0.0/24]",
		Meaning: "The addresses of the proxies. The gateway answers only them and programs of this machine, and takes the address of a client from their X-Forwarded-For alone.",
	},
	{
		Key: "inbox_paths", Home: true, Type: TypeList, Limits: "a list of directories", Default: "[]", Effect: EffectNow,
		Example: "[/srv/inboxes]",
		Meaning: "The directories outside of the home below which the inbox.path of an agent may lie.",
	},
	{
		Key: "secrets.NAME", Home: true, Type: TypeMap, Limits: "ref: env:NAME or file:PATH; hosts: 1 to 20 hosts such as api.example.org; agents: ids of agents", Effect: EffectMessage,
		Example: `{ref: "env:SHOP_TOKEN", hosts: [api.shop.example], agents: [alice]}`,
		Meaning: "A value that requests may carry and the model does not know: `{{secret:NAME}}` in a header of http_request stands for it. `ref` is where the runner finds it, in its environment or in a file of its machine; `hosts` are those to which it may be sent, and no redirect leads it to another; `agents` may use it, without the list all of the home.",
	},
	{
		Key: "hooks", Agent: true, Home: true, Type: TypeList, Limits: "a list of hooks, each with name, events and command; at most 64 with those of the home", Default: "[]", Effect: EffectMessage,
		Example: "[{name: no-links, events: [message_sending], command: [no-links.sh]}]",
		Meaning: "Programs that are called at events, to decide or to observe. Those at the top of theclaw.yaml and those of config.yaml are all in force; neither belongs below agents.defaults or in an entry of agents.list.",
	},
	{
		Key: "hooks[].name", Agent: true, Home: true, Type: TypeText, Limits: "lower-case letters, digits, _ and -, at most 64", Effect: EffectMessage,
		Example: "no-links",
		Meaning: "The name of the hook. No other hook of the file, or of the home, has it.",
	},
	{
		Key: "hooks[].events", Agent: true, Home: true, Type: TypeList, Limits: "names of events", Effect: EffectMessage,
		Example: "[message_sending, message_sent]",
		Meaning: "The events: message_received, message_sending, message_sent, command, command:new, command:reset, command:stop, session_start, session_end, gateway_start, gateway_stop. message_received and those of the gateway belong in theclaw.yaml. docs/hooks.md says what each is and what a hook may change.",
	},
	{
		Key: "hooks[].match", Agent: true, Home: true, Type: TypeMap, Limits: "agents, sessions and channels: lists of names in which * matches any characters", Default: "{}", Effect: EffectMessage,
		Example: `{agents: [alice], channels: ["tg*"]}`,
		Meaning: "Which events: by the id of the agent, the key of the session and the account. Without a list all.",
	},
	{
		Key: "hooks[].command", Agent: true, Home: true, Type: TypeList, Limits: "1 to 64 words of at most 4,096 bytes; the first is a file in the directory hooks, or an absolute path", Effect: EffectMessage,
		Example: "[no-links.sh]",
		Meaning: "The program and its arguments. It runs in the sandbox, where the directory hooks of the agent, or of the home, is at /hooks and cannot be changed.",
	},
	{
		Key: "hooks[].priority", Agent: true, Home: true, Type: TypeNumber, Limits: "-1000 to 1000", Unit: "ranks", Default: "0", Effect: EffectMessage,
		Example: "10",
		Meaning: "The order of hooks of one event: the highest first. With the same priority hooks of command are before those of command:NAME, and then the order of the file counts.",
	},
	{
		Key: "hooks[].timeout", Agent: true, Home: true, Type: TypeDuration, Limits: "100ms to 1m", Default: "5s", Effect: EffectMessage,
		Example: "2s",
		Meaning: "How long a call may take; then it is killed, and has failed. All hooks of an event take at most 15s.",
	},
	{
		Key: "hooks[].on_failure", Agent: true, Home: true, Type: TypeChoice, Values: []string{"open", "closed"}, Default: "closed for message_sending, else open", Effect: EffectMessage,
		Example: "open",
		Meaning: "What a failure means: as if the hook were not there (`open`), or what is about to happen waits (`closed`).",
	},
	{
		Key: "hooks[].env", Agent: true, Home: true, Type: TypeMap, Limits: "at most 50; values are env:NAME or file:PATH", Default: "{}", Effect: EffectMessage,
		Example: `{API_KEY: "env:GUARD_KEY"}`,
		Meaning: "Variables of the program, with values that the runner reads from its environment or from a file of its machine.",
	},
	{
		Key: "mcp.servers.NAME", Home: true, Type: TypeMap, Limits: "at most 32; " + ServerForm, Effect: EffectMessage,
		Example: `{command: [github-mcp-server, stdio], env: {GITHUB_PERSONAL_ACCESS_TOKEN: "env:GH_TOKEN"}, network: [api.github.com]}`,
		Meaning: "An MCP server, which has tools for agents. It is either a program that the runner starts (`command`), or reached by HTTP (`url`). The owner approves each of its tools before a model sees it: `agentctl mcp` adds servers and approves tools.",
	},
	{
		Key: "mcp.servers.NAME.command", Home: true, Type: TypeList, Limits: "1 to 64 words of at most 4,096 bytes", Effect: EffectMessage,
		Example: "[github-mcp-server, stdio]",
		Meaning: "The program and its arguments. It speaks MCP over its input and output.",
	},
	{
		Key: "mcp.servers.NAME.url", Home: true, Type: TypeText, Limits: "an https URL without a user; http only to a loopback address", Effect: EffectMessage,
		Example: "https://mcp.example.org/mcp",
		Meaning: "The address of a server that speaks MCP over HTTP (streamable HTTP).",
	},
	{
		Key: "mcp.servers.NAME.env", Home: true, Type: TypeMap, Limits: "at most 50; values are a text of at most 4,096 bytes, env:NAME or file:PATH", Effect: EffectMessage,
		Example: `{GITHUB_PERSONAL_ACCESS_TOKEN: "env:GH_TOKEN"}`,
		Meaning: "Variables of the environment of `command`. With env:NAME or file:PATH the runner reads the value from its own environment or from a file of its machine.",
	},
	{
		Key: "mcp.servers.NAME.headers", Home: true, Type: TypeMap, Limits: "at most 20; values are env:NAME, file:PATH, or a text with {{secret:NAME}}", Effect: EffectMessage,
		Example: `{Authorization: "Bearer {{secret:SHOP}}"}`,
		Meaning: "Headers of each request to `url`. The values are with the runner, so that they are not in this file.",
	},
	{
		Key: "mcp.servers.NAME.cwd", Home: true, Type: TypeChoice, Values: []string{"scratch", "workdir"}, Default: "scratch", Effect: EffectMessage,
		Example: "workdir",
		Meaning: "Where `command` works: in a directory of its own, or in the working directory of the agent, which it can then change.",
	},
	{
		Key: "mcp.servers.NAME.network", Home: true, Type: TypeText, Limits: "off, open, or at most 100 hosts such as api.example.org", Default: "off", Effect: EffectMessage,
		Example: "[api.github.com]",
		Meaning: "What `command` reaches: nothing, the network of the host, or the listed hosts by HTTP and HTTPS.",
	},
	{
		Key: "mcp.servers.NAME.sandbox", Home: true, Type: TypeChoice, Values: []string{"on", "off"}, Default: "on", Effect: EffectMessage,
		Example: "off",
		Meaning: "Whether `command` is started in the sandbox. `off` starts it with all rights of the runner: hosts and paths cannot be listed then.",
	},
	{
		Key: "mcp.servers.NAME.paths", Home: true, Type: TypeList, Limits: "at most 20 absolute paths", Default: "[]", Effect: EffectMessage,
		Example: "[/srv/docs]",
		Meaning: "Files and directories of the machine of the runner that `command` may read in the sandbox, and not change, besides those that every program sees. A path that holds the home, or is in it, is refused.",
	},
	{
		Key: "mcp.servers.NAME.tools", Home: true, Type: TypeMap, Limits: "allow and deny: at most 200 names of tools at the server, each, with * for any characters", Effect: EffectMessage,
		Example: "{deny: [delete_repo]}",
		Meaning: "Which tools of the server are used: those that `deny` does not name, and with `allow` only those that it names.",
	},
	{
		Key: "mcp.servers.NAME.classes", Home: true, Type: TypeMap, Limits: "at most 512; values are read, idempotent or effect", Effect: EffectMessage,
		Example: "{list_issues: read}",
		Meaning: "What a call of a tool does, by its name at the server, where the server states it wrongly or not at all. Calls of class read and idempotent are repeated after a crash; calls of class effect are not.",
	},
	{
		Key: "mcp.servers.NAME.timeout", Home: true, Type: TypeDuration, Limits: "1s to 10m", Default: "30s", Effect: EffectMessage,
		Example: "2m",
		Meaning: "How long a call may take without a sign of progress.",
	},
	{
		Key: "tools.programs.NAME", Home: true, Type: TypeMap, Limits: "at most 20; words of lower-case letters and digits with one _ between them, and not the name of a tool that is built in", Effect: EffectMessage,
		Example: `{argv: [convert, "{file}", -resize, "{width}", small.png], description: Makes a small copy of a picture., schema: {properties: {file: {type: string}, width: {type: integer}}, required: [file, width]}}`,
		Meaning: "A program that models call as a tool of this name. It runs in the working directory of the agent, in the same sandbox as commands, and no shell reads its arguments. The lists of tools decide who has it: it belongs to group:programs and to group:runtime.",
	},
	{
		Key: "tools.programs.NAME.argv", Home: true, Type: TypeList, Limits: "1 to 64 words of at most 4,096 bytes; the first is the name of a program or an absolute path", Effect: EffectMessage,
		Example: `[convert, "{file}", small.png]`,
		Meaning: "The program and its arguments; it is required. A word with {name} in it stands for the argument of that name: it is left out where the call has none, and repeated for each value of a list. A word that begins with {name} gets no value that begins with -, unless a word -- is before it.",
	},
	{
		Key: "tools.programs.NAME.description", Home: true, Type: TypeText, Limits: "one line of at most 1024 bytes", Effect: EffectMessage,
		Example: "Makes a small copy of a picture.",
		Meaning: "What the program does, for the model; it is required.",
	},
	{
		Key: "tools.programs.NAME.schema", Home: true, Type: TypeMap, Limits: "a JSON schema of an object, of at most 8 KiB as JSON, with type, properties, required, additionalProperties, items, enum, and description, title, default, examples", Default: "{properties: {}}", Effect: EffectMessage,
		Example: "{properties: {file: {type: string}}, required: [file]}",
		Meaning: "The arguments. A call that does not fit runs nothing.",
	},
	{
		Key: "tools.programs.NAME.input", Home: true, Type: TypeChoice, Values: []string{"args", "stdin"}, Default: "args", Effect: EffectMessage,
		Example: "stdin",
		Meaning: "How the program gets the arguments: in the words of argv, or as a JSON object on its standard input.",
	},
	{
		Key: "tools.programs.NAME.network", Home: true, Type: TypeText, Limits: "off, open, or at most 100 hosts such as api.example.org", Default: "off", Effect: EffectMessage,
		Example: "[api.example.org]",
		Meaning: "What the program reaches in the sandbox, whatever sandbox.network says: nothing, the network of the host, or the listed hosts by HTTP and HTTPS. With `open`, and where commands run on the host, tools.exec.security decides on each call.",
	},
	{
		Key: "tools.programs.NAME.timeout", Home: true, Type: TypeDuration, Limits: "1s to 1h", Default: "1m", Effect: EffectMessage,
		Example: "10m",
		Meaning: "How long the program may run.",
	},
	{
		Key: "tools.programs.NAME.class", Home: true, Type: TypeChoice, Values: []string{"read", "idempotent", "effect"}, Default: "effect", Effect: EffectMessage,
		Example: "read",
		Meaning: "What a call does: calls of class read and idempotent are repeated after a crash, and those of class read run together; calls of class effect are not repeated.",
	},
	{
		Key: "storage.engine", Home: true, Type: TypeChoice, Values: []string{"sqlite", "postgres"}, Default: "sqlite", Effect: EffectRestart,
		Example: "postgres",
		Meaning: "Where the registry keeps agents and threads: in the home (`sqlite`) or in a PostgreSQL database (`postgres`), which needs storage.dsns. A change moves nothing; `agentctl migrate-store` does.",
	},
	{
		Key: "storage.dsns", Home: true, Type: TypeList, Limits: "one address: env:NAME, file:PATH or postgres://user@host:5432/name without a password", Default: "[]", Effect: EffectRestart,
		Example: `["env:THECLAW_DSN"]`,
		Meaning: "The address of the PostgreSQL database. The flag --dsn of agentd takes precedence.",
	},
}

// Settings returns the table of all keys: those of config.yaml in the order in which they
// are shown, then those of theclaw.yaml alone.
func Settings() []Setting {
	out := make([]Setting, 0, len(fields)+len(lists)+len(homes))
	for i := range fields {
		out = append(out, fields[i].setting())
	}
	return append(append(out, lists...), homes...)
}

// HomeKeys returns the keys at the top of theclaw.yaml.
func HomeKeys() (keys []string) {
	for _, s := range homes {
		top, _, _ := strings.Cut(s.Key, ".")
		top = strings.TrimSuffix(top, "[]")
		if !slices.Contains(keys, top) {
			keys = append(keys, top)
		}
	}
	return keys
}

// setting describes a field.
func (f *Field) setting() Setting {
	c := Default()
	s := Setting{
		Key: f.Key, Agent: !f.OfHome, Home: !f.Own, Values: f.Rule.Words, Limits: f.Rule.Form, Unit: f.Unit,
		Default: f.Show(&c), Effect: f.Effect, Example: f.Example, Meaning: f.Meaning,
	}
	bound := strconv.Itoa
	switch f.Ref(&c).(type) {
	case *string:
		if s.Type = TypeText; s.Values != nil {
			s.Type = TypeChoice
		}
	case *int:
		s.Type = TypeNumber
	case *bool:
		s.Type, s.Values = TypeBoolean, []string{"true", "false"}
	case *[]string:
		s.Type = TypeList
	case *Network, *Amount, *Delay, *Transcribe:
		s.Type = TypeText
	case *Variables:
		s.Type = TypeMap
	case *Switch:
		s.Type, s.Values = TypeChoice, []string{string(On), string(Off), string(Auto)}
	case *time.Duration:
		s.Type, bound = TypeDuration, func(n int) string { return Duration(time.Duration(n)) }
	}
	if f.Rule.High > 0 {
		s.Limits = bound(f.Rule.Low) + " to " + bound(f.Rule.High)
		if f.Rule.Zero {
			s.Limits = "0, or " + s.Limits
		}
	}
	return s
}

// Explain returns the settings that a person means by a key: that key, those below a group
// such as retry or channels, for an entry of channels what each may hold, and for a key
// below `defaults.` or `agents.defaults.` that key. It returns none for a key that does not
// exist.
func Explain(key string) (out []Setting) {
	if rest, ok := strings.CutPrefix(key, "agents.defaults."); ok {
		key = "defaults." + rest
	}
	key, below := strings.CutPrefix(key, "defaults.")
	keys := []string{key}
	if rest, ok := strings.CutPrefix(key, "channels."); ok {
		name, attribute, deep := strings.Cut(rest, ".")
		if name != ChannelName && name != AccountName && !IsID(name) {
			return nil
		}
		keys = nil
		for _, of := range []string{ChannelName, AccountName} {
			if name == ChannelName && of != name || name == AccountName && of != name {
				continue
			}
			full := "channels." + of
			if deep {
				full += "." + attribute
			}
			keys = append(keys, full)
		}
	}
	if strings.HasPrefix(key, ByProvider) {
		keys = []string{ByProvider + "PROVIDER"}
		for _, attribute := range []string{".profile", ".allow", ".also_allow", ".deny"} {
			if strings.HasSuffix(key, attribute) {
				keys[0] += attribute
				break
			}
		}
	}
	if strings.HasPrefix(key, "secrets.") {
		keys = []string{"secrets." + ChannelName}
	}
	if rest, ok := strings.CutPrefix(key, "mcp.servers."); ok {
		name, attribute, deep := strings.Cut(rest, ".")
		if name != ChannelName && !IsServer(name) {
			return nil
		}
		keys = []string{"mcp.servers." + ChannelName}
		if deep {
			keys[0] += "." + attribute
		}
	}
	if rest, ok := strings.CutPrefix(key, "tools.programs."); ok {
		_, attribute, deep := strings.Cut(rest, ".")
		keys = []string{"tools.programs." + ChannelName}
		if deep {
			keys[0] += "." + attribute
		}
	}
	for _, list := range []string{"outbound", "agents.list", "hooks"} {
		if rest, ok := strings.CutPrefix(key, list+"["); ok {
			if _, attribute, deep := strings.Cut(rest, "]"); deep {
				keys = []string{list + "[]" + attribute}
			}
		}
	}
	for _, s := range Settings() {
		if below && !(s.Agent && s.Home) {
			continue
		}
		for _, key := range keys {
			if s.Key == key || strings.HasPrefix(s.Key, key+".") || strings.HasPrefix(s.Key, key+"[") {
				out = append(out, s)
				break
			}
		}
	}
	return out
}

// Nearest returns the one of the keys that a person who typed key may have meant: the same
// but for two letters, or the only one that ends in it, as run.concurrency in concurrency.
// Empty: there is none.
func Nearest(key string, among []string) string {
	best, distance := "", 3
	for _, k := range among {
		if d := edits(key, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return best
	}
	leaf := key[strings.LastIndexByte(key, '.')+1:]
	distance = min(3, len(leaf)-2) // a short word is near to many
	for _, k := range among {
		_, end, _ := strings.Cut(k, ".")
		switch d := edits(leaf, end); {
		case end == "":
		case d < distance:
			best, distance = k, d
		case d == distance:
			best = "" // one of several
		}
	}
	return best
}

// edits is the Levenshtein distance of two short words.
func edits(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
