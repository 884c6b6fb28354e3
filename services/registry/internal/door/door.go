// Package door owns whom an agent takes messages from.
package door

import (
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
)

// Refused says why an agent takes no message of a source; nil when it does. Of the
// system agents only admin speaks with people, unless inbox.external says otherwise;
// the console is the owner's own and always open.
func Refused(set *agentdir.Agent, from string) error {
	a, _, err := source.ParseLenient(from)
	if err != nil || a.Kind != source.External || a.ChannelType == "console" {
		return nil // what cannot be read is told by who reads it
	}
	c := set.Config
	if c.Inbox.External == "allow" || c.Inbox.External == "auto" && (c.Kind != "system" || c.AgentID == "admin") {
		return nil
	}
	return fault.New(codes.PermissionDenied, fault.PermissionDenied, "agent '"+c.AgentID+"' takes no messages from outside",
		"write to admin, or set inbox.external to allow")
}
