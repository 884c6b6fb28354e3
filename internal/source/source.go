// Package source parses and prints the source address: the text in an event's source
// column that names who wrote the event.
//
//	external:<channel_type>:<channel_id>:<session_type>:<session_id>:<peer_id>
//	internal:<conv_type>:<conv_id>:<agent_id>
//	self
//
// It promises that [Address.String] prints back byte for byte what [Parse] accepts, and
// that two different valid addresses never print the same text. The external tools define
// no escaping, so an id that holds a colon has no valid address; [ParseLenient] reads what
// such tools wrote, and reports what it had to guess.
//
// It does not decide who may state an address (the registry does) and does not turn one
// into a path (package route does).
package source

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// Limits of an address in bytes: of one we write, and of one that is read.
const (
	MaxBytes   = 1024
	MaxLenient = 8192
)

// Addresses with a fixed text.
const (
	// SelfText is the address of the agent's own events.
	SelfText = "self"
	// Console is the source of `agentctl chat`.
	Console = "external:console:cli:dm:cli:cli"
	// DefaultConv is the conversation of an internal address that names none.
	DefaultConv = "default"
)

// Process is the conversation type of the registry's own events about a process that a tool has
// left in the background.
const Process = "process"

// Kind is the first word of an address.
type Kind uint8

// The kinds. The zero Kind is no address.
const (
	External Kind = iota + 1 // a person, through a channel
	Internal                 // another agent
	Self                     // the agent itself
)

// String is the word in an address.
func (k Kind) String() string {
	switch k {
	case External:
		return "external"
	case Internal:
		return "internal"
	case Self:
		return SelfText
	}
	return "unknown"
}

// Session types of an external address.
const (
	DM      = "dm"
	Group   = "group"
	Channel = "channel"
)

// Address is a parsed source. Only the fields of its kind are set.
type Address struct {
	Kind Kind

	ChannelType string // external: telegram, slack, console, ...
	ChannelID   string // external: the configured instance of the channel
	SessionType string // external: dm, group or channel
	SessionID   string // external: the conversation; a sub-session follows a '/'
	PeerID      string // external: who wrote

	ConvType string // internal: dm, ...
	ConvID   string // internal: the conversation, usually "default"
	AgentID  string // internal: the agent that wrote
}

// Agent is the address under which the agent id writes to another agent.
func Agent(id string) Address {
	return Address{Kind: Internal, ConvType: DM, ConvID: DefaultConv, AgentID: id}
}

// String prints the address. It does not check it; see [Address.Validate].
func (a Address) String() string {
	switch a.Kind {
	case External:
		return strings.Join([]string{"external", a.ChannelType, a.ChannelID, a.SessionType, a.SessionID, a.PeerID}, ":")
	case Internal:
		return strings.Join([]string{"internal", a.ConvType, a.ConvID, a.AgentID}, ":")
	case Self:
		return SelfText
	}
	return ""
}

// AboutProcess reports whether this is the source of the registry's own events about a process.
func (a Address) AboutProcess() bool { return a.Kind == Internal && a.ConvType == Process }

// PeerOf names who wrote under an address, in whatever account and conversation.
func PeerOf(address string) string {
	a, _, err := ParseLenient(address)
	switch {
	case err != nil:
		return address
	case a.Kind == External:
		return "external:" + a.ChannelType + ":" + a.PeerID
	case a.Kind == Internal:
		return "internal:" + a.AgentID
	}
	return address
}

// Validate reports whether the address can be written: INVALID_ARGUMENT if not.
func (a Address) Validate() error {
	switch a.Kind {
	case Self:
		if a != (Address{Kind: Self}) {
			return invalid(SelfText, "`self` has no further parts")
		}
		return nil
	case External, Internal:
		got, err := Parse(a.String())
		if err == nil && got != a {
			err = invalid(a.String(), "it has fields of another kind of address")
		}
		return err
	}
	return invalid("", "it is empty")
}

// Parse reads an address and accepts only the exact form; the error is a
// [fault.Error] with reason INVALID_ARGUMENT.
func Parse(s string) (Address, error) {
	if problem := unfit(s); problem != "" {
		return Address{}, invalid(s, problem)
	}
	return parse(s)
}

// parse reads the exact form; the complete text was checked.
func parse(s string) (Address, error) {
	if s == SelfText {
		return Address{Kind: Self}, nil
	}
	parts := strings.Split(s, ":")
	var a Address
	switch parts[0] {
	case "external":
		if len(parts) != 6 {
			return Address{}, invalid(s, fmt.Sprintf("an external address has 6 parts, this has %d", len(parts)))
		}
		a = Address{
			Kind: External, ChannelType: parts[1], ChannelID: parts[2],
			SessionType: parts[3], SessionID: parts[4], PeerID: parts[5],
		}
	case "internal":
		if len(parts) != 4 {
			return Address{}, invalid(s, fmt.Sprintf("an internal address has 4 parts, this has %d", len(parts)))
		}
		a = Address{Kind: Internal, ConvType: parts[1], ConvID: parts[2], AgentID: parts[3]}
	default:
		return Address{}, invalid(s, "it begins with none of external:, internal:, self")
	}
	if problem := a.problem(); problem != "" {
		return Address{}, invalid(s, problem)
	}
	return a, nil
}

// problem checks the parts of an address whose complete text is fit.
func (a Address) problem() string {
	if a.Kind == Internal {
		switch {
		case !word(a.ConvType):
			return "the conversation type is not a lower case word"
		case a.ConvID == "":
			return "the conversation id is empty"
		case a.AgentID == "":
			return "the agent id is empty"
		}
		return ""
	}
	switch {
	case !word(a.ChannelType):
		return "the channel type is not a lower case word"
	case a.ChannelID == "":
		return "the channel id is empty"
	case a.SessionType != DM && a.SessionType != Group && a.SessionType != Channel:
		return "the session type is none of dm, group, channel"
	case a.SessionID == "":
		return "the session id is empty"
	case a.PeerID == "":
		return "the peer id is empty"
	}
	return ""
}

// unfit names what no address of ours may contain; "" if there is nothing.
func unfit(s string) string {
	switch problem := unreadable(s); {
	case problem != "":
		return problem
	case len(s) > MaxBytes:
		return fmt.Sprintf("it is longer than %d bytes", MaxBytes)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "it has a control character"
	}
	return ""
}

// unreadable names what an address of nobody may contain: no path, argument or
// message could carry it on.
func unreadable(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > MaxLenient:
		return fmt.Sprintf("it is longer than %d bytes", MaxLenient)
	case !utf8.ValidString(s):
		return "it is not UTF-8"
	case strings.ContainsRune(s, 0):
		return "it has a NUL"
	}
	return ""
}

// word reports whether s is [a-z0-9][a-z0-9_.-]*.
func word(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

func invalid(s, problem string) error {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "..."
	}
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument,
		fmt.Sprintf("%q is not a source address: %s", s, problem),
		"write external:<channel_type>:<channel_id>:<dm|group|channel>:<session_id>:<peer_id> or internal:<conv_type>:<conv_id>:<agent_id>")
	e.Fields = []fault.Field{{Name: "source", Problem: problem}}
	return e
}
