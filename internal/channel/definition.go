package channel

import (
	"context"
	"regexp"
	"slices"
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
}

var secretRule = regexp.MustCompile(`^(env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:[^\pC]+)$`)

// CheckSecret returns what is wrong with the reference to the secret, or an empty text.
func (d Definition) CheckSecret() (problem string) {
	if d.Secret != "" && (len(d.Secret) > 1024 || !secretRule.MatchString(d.Secret)) {
		return "secret must be a reference, env:NAME or file:PATH, never the secret itself"
	}
	return ""
}

// Type is a type of channel that entries of `channels:` can have. Its package declares
// one; package catalog lists them.
type Type struct {
	Name string
	// Check returns which attribute of an entry of config.yaml is wrong, and why. It repeats
	// neither a secret nor an address: both may hold what must not be in a log.
	Check func(d Definition) (attribute, problem string)
	// Open makes the channel name of an entry that passed the check. It does not connect.
	Open func(name string, d Definition, deps Deps) (Channel, error)
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
