package admission

import (
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
)

// CheckSource returns an error with the reason PERMISSION_DENIED when an agent takes no
// message of a source. Of the system agents only admin speaks with people, unless
// inbox.external says otherwise; the console belongs to the owner and is always accepted.
func CheckSource(c *config.Config, from string) error {
	a, _, err := source.ParseLenient(from)
	if err != nil || a.Kind != source.External || a.ChannelType == "console" {
		return nil // whoever reads a malformed source reports it
	}
	if c.Inbox.External == "allow" || c.Inbox.External == "auto" && (c.Kind != "system" || c.AgentID == "admin") {
		return nil
	}
	return fault.New(codes.PermissionDenied, fault.PermissionDenied, "agent '"+c.AgentID+"' accepts no messages from outside",
		"write to admin, or set inbox.external to allow")
}
