package layer

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/chatcommand"
)

// Who may use a chat command.
const (
	CommandsOfOwners = "owners"
	CommandsOfAll    = "allowed" // who may write to the agent
	CommandsOfNone   = "none"
)

// Commands are the settings of the commands in chats.
type Commands struct {
	// Off: what would be a command is a message.
	Off bool
	// Allow says who may use a command, by its name; without an entry it is as the command has it.
	Allow map[string]string
}

// Permits reports whether a person may use a command, and who may.
func (c Commands) Permits(spec chatcommand.Spec, owner bool) (ok bool, who string) {
	if who = c.Allow[spec.Name]; who == "" {
		if who = CommandsOfOwners; spec.Allowed {
			who = CommandsOfAll
		}
	}
	return who == CommandsOfAll || who == CommandsOfOwners && owner, who
}

// commands reads the section of the chat commands.
func (l *layer) commands(kv *ast.MappingValueNode, s *HomeSettings) {
	at, on := map[string]ast.Node{}, true
	l.object(kv.Value, "commands", map[string]any{"enabled": &on, "allow": func(kv *ast.MappingValueNode) {
		pairs, ok := l.pairs(kv.Value, "commands.allow")
		if !ok {
			l.fail(orKey(kv), "commands.allow", "commands.allow must have `NAME: owners` lines below it")
			return
		}
		s.Commands.Allow = map[string]string{}
		for _, p := range pairs {
			var who string
			name := written(p)
			problem := text(p.Value, &who)
			_, known := chatcommand.Find(name)
			switch {
			case !known:
				problem = fmt.Sprintf("there is no command %q; /help lists them", config.Clip(name))
			case problem == "" && who != CommandsOfOwners && who != CommandsOfAll && who != CommandsOfNone:
				problem = fmt.Sprintf("%q is none of %s, %s, %s", config.Clip(who), CommandsOfOwners, CommandsOfAll, CommandsOfNone)
			}
			if problem != "" {
				l.fail(orKey(p), "commands.allow", "commands.allow: "+problem)
				continue
			}
			s.Commands.Allow[name] = who
		}
	}}, at)
	s.Commands.Off = !on
}
