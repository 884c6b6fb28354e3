// Package chatcommand defines the commands that people write in chats, such as /new and /model: their names,
// what each class means, and which texts are one.
//
// It promises that a text is a command only when it is nothing else: a prefix, a name of [List], and its
// arguments, or one of the few words that stop the agent. Every other text, an unknown name and the names that the
// registry keeps for itself included, is an ordinary message.
//
// It carries no command out and does not decide who may use one.
package chatcommand

import (
	"slices"
	"strings"
)

// Class is where a command is carried out.
type Class int

// Classes.
const (
	// Info is answered by the service that received it.
	Info Class = iota + 1
	// Decision answers an approval, a question or a pairing.
	Decision
	// Turn is a turn without a model, in the conversation in which it was written.
	Turn
	// Cut stops what the conversation has begun before it.
	Cut
)

// Names of commands with a meaning outside of this package.
const (
	New      = "new"
	Reset    = "reset"
	Compact  = "compact"
	Model    = "model"
	Think    = "think"
	Queue    = "queue"
	Elevated = "elevated"
	Stop     = "stop"

	Verbose   = "verbose"
	Reasoning = "reasoning"
)

const (
	// MaxArgs is the most bytes of arguments; a longer text is a message.
	MaxArgs = 64 << 10
)

// Spec describes a command.
type Spec struct {
	Name  string
	Class Class
	// Args shows its arguments, and Help says in one line what it does.
	Args, Help string
	// Allowed: everyone who may write to the agent may use it; else its owners alone.
	Allowed bool
}

var list = []Spec{
	{"help", Info, "", "list the commands", true},
	{"start", Info, "", "say what this assistant is", true},
	{"whoami", Info, "", "show who you are to the agent, and whether you own it", true},
	{"status", Info, "", "show the agent, its model, this session and the queue", true},
	{"usage", Info, "", "show the tokens of this session and what they cost", true},
	{"approve", Decision, "ID [once, always]", "allow what waits for your decision", false},
	{"deny", Decision, "ID", "refuse what waits for your decision", false},
	{"answer", Decision, "ID ANSWER", "answer a question of the agent, by the number of an option or in words", true},
	{"pair", Decision, "CODE", "let the person with this code write to the agent", false},
	{New, Turn, "[TEXT]", "begin a new session; TEXT is its first message", true},
	{Reset, Turn, "", "begin a new session", true},
	{Compact, Turn, "", "digest this conversation into the memory now", true},
	{Model, Turn, "[NAME]", "show the model, or choose another one for this conversation", true},
	{Think, Turn, "[LEVEL]", "how the model thinks: off, minimal, low, medium, high, xhigh, adaptive or a number of tokens", true},
	{Verbose, Turn, "[MODE]", "show the calls of tools before a reply: off, on, or full with their results", true},
	{Reasoning, Turn, "[MODE]", "show what the model thinks: off, stream to clients that follow a run, or block before a reply", true},
	{Queue, Turn, "[MODE]", "what becomes of messages during a turn: followup, collect, steer or interrupt", true},
	{Elevated, Turn, "[on, off, ask, full]", "let commands run outside of the sandbox", false},
	{Stop, Cut, "", "stop the run of this conversation, and the messages that wait", true},
}

// stops are the texts that are [Stop] without a prefix.
var stops = []string{"stop", "abort", "停止"}

// List returns all commands, in the order of the help.
func List() []Spec { return slices.Clone(list) }

// Find returns the command of a name.
func Find(name string) (Spec, bool) {
	i := slices.IndexFunc(list, func(s Spec) bool { return s.Name == name })
	if i < 0 {
		return Spec{}, false
	}
	return list[i], true
}

// Queued reports whether a command of this name is an event of the inbox: its class is [Turn] or [Cut].
func Queued(name string) bool {
	s, ok := Find(name)
	return ok && (s.Class == Turn || s.Class == Cut)
}

// IsCut reports whether a command of this name stops what its conversation has begun.
func IsCut(name string) bool {
	s, ok := Find(name)
	return ok && s.Class == Cut
}

// AsksModel reports whether the turn of a queued command may take as long as a model does.
func AsksModel(name, args string) bool {
	return name == Compact || name == New && args != ""
}

// Rules say what counts as a command where a text was written; the zero value is right for a terminal.
type Rules struct {
	// Bot is the name of the agent's account on its platform, without an @. A command that names another bot is
	// no command here.
	Bot string
	// Mentions are how a text mentions the bot at its beginning, such as @demo_bot or <@U12>.
	Mentions []string
	// Bang: the platform keeps the prefix / for itself, so that ! is one, too.
	Bang bool
}

// Command is a command with its arguments.
type Command struct {
	Name string `json:"name"`
	Args string `json:"args,omitempty"`
}

// Parse reads a command; false: the text is a message.
func Parse(text string, r Rules) (Command, bool) {
	text = unmentioned(strings.TrimSpace(text), r.Mentions)
	if slices.ContainsFunc(stops, func(s string) bool { return strings.EqualFold(s, text) }) {
		return Command{Name: Stop}, true
	}
	if !strings.HasPrefix(text, "/") && !(r.Bang && strings.HasPrefix(text, "!")) {
		return Command{}, false
	}
	word, args := text[1:], ""
	if i := strings.IndexAny(word, " \t\r\n"); i >= 0 {
		word, args = word[:i], strings.TrimSpace(word[i:])
	}
	name, bot, named := strings.Cut(word, "@")
	if named && (bot == "" || !strings.EqualFold(bot, r.Bot)) || len(args) > MaxArgs {
		return Command{}, false
	}
	if _, ok := Find(name); !ok {
		return Command{}, false
	}
	return Command{name, args}, true
}

// unmentioned is a text without the mention of the bot at its beginning.
func unmentioned(text string, mentions []string) string {
	for _, m := range mentions {
		if m == "" || len(text) < len(m) || !strings.EqualFold(text[:len(m)], m) {
			continue
		}
		rest := text[len(m):]
		if trimmed := strings.TrimLeft(rest, " \t\r\n,:"); trimmed != rest || rest == "" { // else it is a longer name
			return trimmed
		}
	}
	return text
}
