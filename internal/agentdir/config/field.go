package config

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A Field is one scalar key, such as retry.max_age.
type Field struct {
	Key string
	// Ref points into a Config: *string, *int, *bool, *Switch or *time.Duration.
	Ref func(*Config) any
	// Check returns what is wrong with what such a pointer points at; nil: nothing ever is.
	Check func(any) string
	// Own keys belong to one agent and are not allowed among the home-wide defaults.
	Own bool
}

// fields in the order in which they are written and shown.
var fields = []Field{
	{"agent_id", func(c *Config) any { return &c.AgentID }, agentID, true},
	{"kind", func(c *Config) any { return &c.Kind }, oneOf("system", "user"), true},
	{"pai.provider", func(c *Config) any { return &c.Pai.Provider }, name, false},
	{"pai.model", func(c *Config) any { return &c.Pai.Model }, name, false},
	{"inbox.path", func(c *Config) any { return &c.Inbox.Path }, line, true},
	{"inbox.external", func(c *Config) any { return &c.Inbox.External }, oneOf("auto", "allow", "refuse"), false},
	{"routing.default", func(c *Config) any { return &c.Routing.Default }, oneOf("per-peer", "per-channel", "per-agent"), false},
	{"retry.max_attempts", func(c *Config) any { return &c.Retry.MaxAttempts }, between(1, 100), false},
	{"retry.max_age", func(c *Config) any { return &c.Retry.MaxAge }, lasting(time.Second, 30*24*time.Hour), false},
	{"deliver.max_attempts", func(c *Config) any { return &c.Deliver.MaxAttempts }, between(1, 100), false},
	{"deliver.max_age", func(c *Config) any { return &c.Deliver.MaxAge }, lasting(time.Second, 30*24*time.Hour), false},
	{"deliver.max_chars", func(c *Config) any { return &c.Deliver.MaxChars }, chars, false},
	{"reply.break", func(c *Config) any { return &c.Reply.Break }, oneOf("off", "text_end", "message_end"), false},
	{"reply.message_tool", func(c *Config) any { return &c.Reply.MessageTool }, nil, false},
	{"context_window", func(c *Config) any { return &c.ContextWindow }, between(1024, 100_000_000), false},
	{"max_output_tokens", func(c *Config) any { return &c.MaxOutputTokens }, between(1, 10_000_000), false},
	{"context.recent_messages", func(c *Config) any { return &c.Context.RecentMessages }, between(1, 1000), false},
	{"compaction.strategy", func(c *Config) any { return &c.Compaction.Strategy }, oneOf("summarise", "truncate"), false},
	{"compaction.at_percent", func(c *Config) any { return &c.Compaction.AtPercent }, between(10, 100), false},
	{"compaction.after_turns", func(c *Config) any { return &c.Compaction.AfterTurns }, between(1, 10_000), false},
	{"compaction.keep_tokens", func(c *Config) any { return &c.Compaction.KeepTokens }, between(0, 10_000_000), false},
	{"compaction.peer_every", func(c *Config) any { return &c.Compaction.PeerEvery }, between(1, 10_000), false},
	{"compaction.agent_every", func(c *Config) any { return &c.Compaction.AgentEvery }, between(1, 10_000), false},
	{"run.concurrency", func(c *Config) any { return &c.Run.Concurrency }, between(1, 512), false},
	{"run.timeout", func(c *Config) any { return &c.Run.Timeout }, lasting(time.Second, 24*time.Hour), false},
	{"queue.mode", func(c *Config) any { return &c.Queue.Mode }, oneOf("followup", "collect", "steer"), false},
	{"sandbox.mode", func(c *Config) any { return &c.Sandbox.Mode }, oneOf("required", "reduced", "off"), false},
	{"sandbox.network", func(c *Config) any { return &c.Sandbox.Network }, nil, false},
	{"approvals", func(c *Config) any { return &c.Approvals }, oneOf("none", "ask"), false},
	{"memory.share", func(c *Config) any { return &c.Memory.Share }, nil, false},
	{"on_error.notify_peer", func(c *Config) any { return &c.OnError.NotifyPeer }, nil, false},
	{"quota.messages_per_day", func(c *Config) any { return &c.Quota.MessagesPerDay }, between(0, 1_000_000_000), false},
	{"quota.peer_messages_per_day", func(c *Config) any { return &c.Quota.PeerMessagesPerDay }, between(0, 1_000_000_000), false},
	{"quota.tokens_per_day", func(c *Config) any { return &c.Quota.TokensPerDay }, between(0, 1_000_000_000_000), false},
	{"quota.peer_tokens_per_day", func(c *Config) any { return &c.Quota.PeerTokensPerDay }, between(0, 1_000_000_000_000), false},
	{"quota.cents_per_day", func(c *Config) any { return &c.Quota.CentsPerDay }, between(0, 1_000_000_000), false},
	{"quota.peer_cents_per_day", func(c *Config) any { return &c.Quota.PeerCentsPerDay }, between(0, 1_000_000_000), false},
	{"quota.pair_per_minute", func(c *Config) any { return &c.Quota.PairPerMinute }, between(1, 1_000_000), false},
	{"price.input_cents", func(c *Config) any { return &c.Price.InputCents }, between(0, 10_000_000), false},
	{"price.output_cents", func(c *Config) any { return &c.Price.OutputCents }, between(0, 10_000_000), false},
	{"workdir.shared", func(c *Config) any { return &c.Workdir.Shared }, directory, false},
	{"workdir.sync", func(c *Config) any { return &c.Workdir.Sync }, oneOf("off", "snapshot"), false},
	{"workdir.max_mib", func(c *Config) any { return &c.Workdir.MaxMiB }, between(1, 4096), false},
	{"workdir.ignore", func(c *Config) any { return &c.Workdir.Ignore }, patterns, false},
}

// index finds a field, groups the keys that only hold others.
var index, groups = func() (map[string]*Field, map[string]bool) {
	at, in := map[string]*Field{}, map[string]bool{}
	for i := range fields {
		at[fields[i].Key] = &fields[i]
		if group, _, ok := strings.Cut(fields[i].Key, "."); ok {
			in[group] = true
		}
	}
	return at, in
}()

// Fields returns the table of scalar keys in the order in which they are shown.
func Fields() []Field { return slices.Clone(fields) }

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

var (
	idRule   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,127}$`)
)

func agentID(v any) string {
	if s := *v.(*string); !idRule.MatchString(s) {
		return fmt.Sprintf("%q is not an agent id (lower-case letters, digits, _ and -, at most 64, starting with a letter or digit)", Clip(s))
	}
	return ""
}

func oneOf(words ...string) func(any) string {
	return func(v any) string {
		if s := *v.(*string); !slices.Contains(words, s) {
			return fmt.Sprintf("%q is not one of %s", Clip(s), strings.Join(words, ", "))
		}
		return ""
	}
}

func name(v any) string {
	if s := *v.(*string); !nameRule.MatchString(s) {
		return fmt.Sprintf("%q is not a name (letters, digits and _.:@/+-, at most 128)", Clip(s))
	}
	return ""
}

func line(v any) string {
	if s := *v.(*string); s == "" || len(s) > 1024 || strings.ContainsFunc(s, unicode.IsControl) {
		return "wants one line of 1 to 1024 bytes"
	}
	return ""
}

func directory(v any) string {
	if s := *v.(*string); s != "" && (!path.IsAbs(s) || line(v) != "") {
		return "wants an absolute directory, or nothing"
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

func between(low, high int) func(any) string {
	return func(v any) string {
		if n := *v.(*int); n < low || n > high {
			return fmt.Sprintf("%d is not between %d and %d", n, low, high)
		}
		return ""
	}
}

// leastChars is the shortest message a reply is cut into.
const leastChars = 64

func chars(v any) string {
	if n := *v.(*int); n != 0 && (n < leastChars || n > 1_000_000) {
		return fmt.Sprintf("%d is neither 0 nor between %d and 1000000", n, leastChars)
	}
	return ""
}

func lasting(low, high time.Duration) func(any) string {
	return func(v any) string {
		if d := *v.(*time.Duration); d < low || d > high {
			return fmt.Sprintf("%s is not between %s and %s", duration(d), duration(low), duration(high))
		}
		return ""
	}
}

// IsID reports whether s may name an agent or a channel.
func IsID(s string) bool { return idRule.MatchString(s) }

// IsName reports whether s may name a provider, a model or a way out.
func IsName(s string) bool { return nameRule.MatchString(s) }

// IsLine returns what is wrong with s as one line of text.
func IsLine(s string) string { return line(&s) }

// Clip keeps a value short enough for a message.
func Clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
