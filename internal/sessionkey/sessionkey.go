// Package sessionkey names conversations: the key that people, programs and settings use,
// and the thread that stores the conversation.
//
//	agent:alice:telegram:tg:dm:1207 --Parse--> Key --Thread--> threads/peers/tg-1207
//	             ^                              |
//	             +------------String------------+
//
//	scope                     key
//	main                      agent:ID:MAIN_KEY
//	per-peer                  agent:ID:dm:PEER
//	per-channel-peer          agent:ID:TYPE:dm:PEER
//	per-account-channel-peer  agent:ID:TYPE:ACCOUNT:dm:PEER
//	per-channel               agent:ID:TYPE:ACCOUNT:all
//	per-conversation          agent:ID:TYPE:group:PEER, agent:ID:TYPE:channel:PEER
//	named                     agent:ID:WORD:NAME, WORD being subagent, cron, hook, plan or session
//	a thread in one of them   KEY:thread:TID
//
// It promises: Parse(k.String()) is k for each valid key k, and nothing else parses to it; two
// keys of an agent never have the same thread, on a file system that ignores case as well,
// provided that an account has one type and the agent one main key. Ids of peers and threads
// are any text: case and colons stay as the platform sends them; `%`, control characters,
// bytes that are no UTF-8, and a colon that could be read as the beginning of `:thread:`, are
// percent-encoded in the text of a key.
//
// It does not decide which scope applies, keeps no table and knows no settings.
package sessionkey

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
)

// Scope says which messages share a conversation.
type Scope string

// The scopes.
const (
	Main               Scope = "main"                     // all of an agent
	Peer               Scope = "per-peer"                 // all of a person, on every type of channel
	ChannelPeer        Scope = "per-channel-peer"         // a person on one type of channel
	AccountChannelPeer Scope = "per-account-channel-peer" // a person at one account
	Channel            Scope = "per-channel"              // all of an account
	Conversation       Scope = "per-conversation"         // a group or a channel of the platform
	Named              Scope = "named"                    // a conversation that the runtime itself makes
)

// Kinds of conversations on a platform.
const (
	DM           = "dm"
	Group        = "group"
	ChannelGroup = "channel"
)

// DefaultMainKey is the main key where none is set.
const DefaultMainKey = "main"

const (
	prefix    = "agent:"
	all       = "all"
	threadSep = ":thread:"

	// maxWord bounds a type, an account and a main key, in bytes.
	maxWord = 64
	// maxID bounds the id of an agent, in bytes.
	maxID = 64
)

// words are those that begin the rest of a named key.
var words = []string{"subagent", "cron", "hook", "plan", "session"}

// Key is a conversation. The fields that its scope does not need are empty.
type Key struct {
	Agent string
	Scope Scope
	// MainKey is the last word of the key of scope Main.
	MainKey string
	// Type and Account are where the conversation takes place.
	Type, Account string
	// Kind is Group or ChannelGroup, in scope Conversation.
	Kind string
	// Peer is the person, the group or the channel.
	Peer string
	// Word and Name are those of scope Named.
	Word, Name string
	// ThreadID is the thread of the platform in that conversation; empty: none.
	ThreadID string
}

// String is the text of the key.
func (k Key) String() string {
	s := prefix + k.Agent + ":"
	switch k.Scope {
	case Main:
		s += k.MainKey
	case Peer:
		s += DM + ":" + escape(k.Peer)
	case ChannelPeer:
		s += k.Type + ":" + DM + ":" + escape(k.Peer)
	case AccountChannelPeer:
		s += k.Type + ":" + k.Account + ":" + DM + ":" + escape(k.Peer)
	case Channel:
		s += k.Type + ":" + k.Account + ":" + all
	case Conversation:
		s += k.Type + ":" + k.Kind + ":" + escape(k.Peer)
	case Named:
		s += k.Word + ":" + escape(k.Name)
	}
	if k.ThreadID != "" {
		s += threadSep + escape(k.ThreadID)
	}
	return s
}

// Folded is the alias by which a key is found in other case.
func (k Key) Folded() string { return strings.ToLower(k.String()) }

// Thread is the path of the thread, relative to the agent's directory; it is the thread's id.
func (k Key) Thread() string {
	dir, name, letter := k.place()
	if k.ThreadID == "" {
		return "threads/" + dir + name
	}
	return "threads/topics/" + route.Name(letter+"."+name+"-"+route.Part(k.ThreadID), k.String())
}

// OfGroup reports whether a thread is the conversation of a group or a channel of a platform, or of a
// topic in one: its members read what is answered there.
func OfGroup(threadID string) bool {
	return strings.HasPrefix(threadID, "threads/"+groupDir) || strings.HasPrefix(threadID, "threads/topics/"+groupLetter+".")
}

// Where the conversations of groups are, and the letter for them in the names of their topics.
const groupDir, groupLetter = "sessions/", "s"

// place is the directory and the name of the conversation without its thread, and the letter
// for it in the name of a thread.
func (k Key) place() (dir, name, letter string) {
	at := route.Tuple{ChannelType: k.Type, ChannelID: k.Account, PeerID: k.Peer}
	whole := k
	whole.ThreadID = ""
	switch k.Scope {
	case Peer:
		return "dms/", route.Part(k.Peer), "d"
	case ChannelPeer:
		return "dms/", route.Name(k.Type+"-"+route.Part(k.Peer), whole.String()), "d"
	case AccountChannelPeer:
		return "peers/", strings.TrimPrefix(route.Thread(route.PerPeer, at), "threads/peers/"), "p"
	case Channel:
		return "channels/", strings.TrimPrefix(route.Thread(route.PerChannel, at), "threads/channels/"), "c"
	case Conversation:
		return groupDir, route.Name(k.Type+"."+k.Kind+"-"+route.Part(k.Peer), whole.String()), groupLetter
	case Named:
		return "named/", route.Name(k.Word+"-"+route.Part(k.Name), whole.String()), "n"
	default:
		return "", "main", "m"
	}
}

// Validate returns nil for a key that [Parse] reads; otherwise an error with reason
// SESSION_KEY_INVALID that says what is wrong.
func (k Key) Validate() error {
	problem := ""
	named := func(name, value string, ok bool) {
		if !ok && problem == "" {
			problem = fmt.Sprintf("%s is %.80q", name, value)
		}
	}
	named("the agent", k.Agent, IsAgentID(k.Agent))
	switch k.Scope {
	case Main:
		named("the main key", k.MainKey, IsMainKey(k.MainKey))
	case Peer:
		named("the peer", k.Peer, k.Peer != "")
	case ChannelPeer:
		named("the type", k.Type, IsWord(k.Type))
		named("the peer", k.Peer, k.Peer != "")
	case AccountChannelPeer:
		named("the type", k.Type, IsWord(k.Type))
		named("the account", k.Account, isAccount(k.Account))
		named("the peer", k.Peer, k.Peer != "")
	case Channel:
		named("the type", k.Type, IsWord(k.Type))
		named("the account", k.Account, isAccount(k.Account))
	case Conversation:
		named("the type", k.Type, IsWord(k.Type))
		named("the kind", k.Kind, k.Kind == Group || k.Kind == ChannelGroup)
		named("the peer", k.Peer, k.Peer != "")
	case Named:
		named("the word", k.Word, isNamed(k.Word))
		named("the name", k.Name, k.Name != "")
	default:
		named("the scope", string(k.Scope), false)
	}
	if problem != "" {
		return invalid(problem)
	}
	return nil
}

// Parse reads the text of a key. The error has reason SESSION_KEY_INVALID.
func Parse(s string) (Key, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	id, rest, more := strings.Cut(rest, ":")
	if !ok || !more || rest == "" {
		return Key{}, invalid(fmt.Sprintf("%.80q does not begin with agent:ID:", s))
	}
	k := Key{Agent: id}
	if i := strings.LastIndex(rest, threadSep); i >= 0 {
		k.ThreadID = unescape(rest[i+len(threadSep):])
		rest = rest[:i]
	}
	first, second, more := strings.Cut(rest, ":")
	switch {
	case !more:
		k.Scope, k.MainKey = Main, first
	case first == DM:
		k.Scope, k.Peer = Peer, unescape(second)
	case isNamed(first):
		k.Scope, k.Word, k.Name = Named, first, unescape(second)
	default:
		k.Type = first
		k.channel(second)
	}
	if err := k.Validate(); err != nil {
		return Key{}, err
	}
	if k.String() != s { // it is encoded in another way, or has an empty thread
		return Key{}, invalid(fmt.Sprintf("%.80q is not as a key is written, which is %.80q", s, k.String()))
	}
	return k, nil
}

// channel reads what follows the type.
func (k *Key) channel(rest string) {
	first, second, _ := strings.Cut(rest, ":")
	switch {
	case first == DM:
		k.Scope, k.Peer = ChannelPeer, unescape(second)
	case first == Group || first == ChannelGroup:
		k.Scope, k.Kind, k.Peer = Conversation, first, unescape(second)
	default:
		k.Account = first
		if second == all {
			k.Scope = Channel
		} else if peer, ok := strings.CutPrefix(second, DM+":"); ok {
			k.Scope, k.Peer = AccountChannelPeer, unescape(peer)
		}
	}
}

// OfThread is the key of the conversation of a source that an agent stores in a thread; false: no
// key names it, as for what agents write to each other.
func OfThread(agent, threadID, mainKey string, t route.Tuple) (Key, bool) {
	if t.Internal {
		return Key{}, false
	}
	for _, k := range []Key{
		{Scope: AccountChannelPeer, Type: t.ChannelType, Account: t.ChannelID, Peer: t.PeerID},
		{Scope: Channel, Type: t.ChannelType, Account: t.ChannelID},
		{Scope: Main, MainKey: mainKey},
		{Scope: ChannelPeer, Type: t.ChannelType, Peer: t.PeerID},
		{Scope: Peer, Peer: t.PeerID},
	} {
		k.Agent = agent
		if k.Thread() == threadID && k.Validate() == nil {
			return k, true
		}
	}
	return Key{}, false
}

// AgentOf is the agent of a key, also of one of another form whose second part is an id; else
// it is def.
func AgentOf(key, def string) string {
	rest, ok := strings.CutPrefix(key, prefix)
	if id, _, more := strings.Cut(rest, ":"); ok && more && IsAgentID(id) {
		return id
	}
	return def
}

// AgentID makes the id of an agent of a name that people write: in lower case, with a '-' for
// each run of other characters and none at an end, at most 64 bytes; without any it is main.
func AgentID(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if IsAgentID(name) {
		return name
	}
	var b strings.Builder
	other := false // the last character was none of an id
	for _, r := range name {
		if r < utf8.RuneSelf && (isLetter(byte(r)) || r == '_' || r == '-') {
			b.WriteRune(r)
			other = false
		} else if !other {
			b.WriteByte('-')
			other = true
		}
	}
	id := strings.Trim(b.String(), "-")
	if id = id[:min(len(id), maxID)]; !IsAgentID(id) { // it begins with '_'
		id = strings.TrimRight(id, "-")
	}
	if id == "" {
		return DefaultMainKey
	}
	return id
}

// IsAgentID reports whether s is the id of an agent.
func IsAgentID(s string) bool { return layout.ValidID(s) == nil }

// isAccount reports whether s can be the account of a key: what [IsWord] allows, and main, which
// external gateways call their channels; it is unambiguous where an account stands.
func isAccount(s string) bool { return s == DefaultMainKey || IsWord(s) }

// IsWord reports whether s can be the name of a type or an account: [a-z0-9][a-z0-9_.-]*, at
// most 64 bytes, and none of the words that keys use themselves.
func IsWord(s string) bool { return s != DefaultMainKey && IsMainKey(s) }

// IsMainKey reports whether s can be the main key of an agent.
func IsMainKey(s string) bool {
	switch s {
	case DM, Group, ChannelGroup, all, "thread":
		return false
	}
	if s == "" || len(s) > maxWord || !isLetter(s[0]) || isNamed(s) {
		return false
	}
	for i := range len(s) {
		if !isLetter(s[i]) && strings.IndexByte("_.-", s[i]) < 0 {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func isNamed(s string) bool {
	return slices.Contains(words, s)
}

// escape makes an id fit for the text of a key.
func escape(id string) string {
	const word = "thread:"
	var b strings.Builder
	for i := 0; i < len(id); {
		r, n := utf8.DecodeRuneInString(id[i:])
		switch {
		case r == '%', unicode.IsControl(r), r == utf8.RuneError && n == 1,
			r == ':' && strings.HasPrefix(id[i+1:], word),
			r == ':' && i == len(word)-1 && strings.HasPrefix(id, word): // the colon before the id counts as well
			for _, c := range []byte(id[i : i+n]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		default:
			b.WriteString(id[i : i+n])
		}
		i += n
	}
	return b.String()
}

// unescape undoes escape; what no escape gives stays, or is written in another way, and is
// refused by the comparison that follows.
func unescape(s string) string {
	if id, err := url.PathUnescape(s); err == nil {
		return id
	}
	return s
}

func invalid(problem string) error {
	return fault.New(codes.InvalidArgument, fault.SessionKeyInvalid, "this is no session key: "+problem,
		"write agent:ID:main, agent:ID:TYPE:ACCOUNT:dm:PEER or agent:ID:TYPE:group:ID")
}
