package channel

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// Names of the built-in channels, which need no entry in `channels:`.
const (
	NameConsole  = "console"
	NameInternal = "internal"
	NameXGW      = "xgw"
)

var builtin = []string{NameXGW, NameInternal, NameConsole}

// Builtin returns the names of the built-in channels, as messages list them.
func Builtin() []string { return slices.Clone(builtin) }

// IsBuiltin reports whether a channel needs no entry in `channels:`.
func IsBuiltin(name string) bool { return slices.Contains(builtin, name) }

// Definition is one entry of `channels:`.
type Definition struct {
	Type         string // name of a [Type]
	URL          string
	Secret       string // env:NAME or file:PATH; empty: requests are not signed
	AllowPrivate bool   // allows http:// and addresses that are not public
	// Token and AppToken are references like Secret, to what the platform gave the account.
	Token, AppToken string
	// API is the address of the platform; empty: its public one.
	API string
	// Plugin is the socket of the program that connects the platform, unix:PATH.
	Plugin string
	// ReplyTo says which messages name, on the screen, the one that they answer: off, first or all; see
	// [Definition.Names].
	ReplyTo string
}

// Words of reply_to.
const (
	ReplyToOff   = "off"   // none
	ReplyToFirst = "first" // the first part
	ReplyToAll   = "all"   // each part
)

// Names reports whether a message names the one that it answers. Without a setting the first part does where others
// write in between, which is everywhere but in a direct conversation.
func (d Definition) Names(m Message) bool {
	switch {
	case m.ReplyContext.ReplyToID() == "" || d.ReplyTo == ReplyToOff || d.ReplyTo == "" && m.ReplyContext.Kind() == KindDM:
		return false
	case d.ReplyTo == ReplyToAll:
		return true
	}
	return m.Part <= 1
}

var secretRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:[^\pC]+)$`) })

// CheckSecrets returns which reference to a secret is wrong, and why; empty texts: none.
func (d Definition) CheckSecrets() (attribute, problem string) {
	for _, s := range []struct{ name, ref string }{{"secret", d.Secret}, {"token", d.Token}, {"app_token", d.AppToken}} {
		if s.ref != "" && (len(s.ref) > 1024 || !secretRule().MatchString(s.ref)) {
			return s.name, s.name + " must be a reference, env:NAME or file:PATH, never the secret itself"
		}
	}
	return "", ""
}

// CheckReplyTo returns what is wrong with reply_to; an empty text: nothing.
func (d Definition) CheckReplyTo() string {
	if d.ReplyTo == "" || slices.Contains([]string{ReplyToOff, ReplyToFirst, ReplyToAll}, d.ReplyTo) {
		return ""
	}
	return fmt.Sprintf("reply_to: %q is not one of %s, %s, %s", Clean(d.ReplyTo, 57), ReplyToOff, ReplyToFirst, ReplyToAll)
}

// Type is a type of channel that entries of `channels:` can have. Its package declares
// one; package catalog lists them.
type Type struct {
	Name string
	// Kinds of conversations that it reports: dm, group, channel.
	Kinds []string
	// KeepsSlash: its clients keep texts that begin with / for themselves, so that commands also
	// begin with !.
	KeepsSlash bool
	// MaxText is the longest text of a message, in the units of its platform; 0: none that is known
	// from the settings.
	MaxText int
	// Keys are the attributes of an entry that it reads, besides those that all types have.
	Keys []string
	// Check returns which attribute of an entry is wrong, and why. It repeats
	// neither a secret nor an address: both may hold what must not be in a log.
	Check func(d Definition) (attribute, problem string)
	// Open makes the channel name of an entry that passed the check. It does not connect.
	Open func(name string, d Definition, deps Deps) (Channel, error)
	// Receive makes what takes in the messages of an account whose entry passed the check. It
	// does not connect. Nil: programs post to an account of this type.
	Receive func(name string, d Definition, deps Deps) (Receiver, error)
	// ReceivesOnly reports whether an account of such an entry sends nothing; nil: each sends.
	ReceivesOnly func(d Definition) bool
}

// Prefix is what commands begin with in the texts that people read.
func (t Type) Prefix() string {
	if t.KeepsSlash {
		return "!"
	}
	return "/"
}

// Resolve returns the value of a secret reference (env:NAME, file:PATH). Its error names
// the reference, never a value.
type Resolve func(ctx context.Context, ref string) (string, error)

// Deps are the live things that channels use.
type Deps struct {
	Pusher  Pusher
	Resolve Resolve
	Env     []string // NAME=value, from which xgw gets its allow-listed part
	Run     RunProgram
}
