package wire

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// StoredCommand is a chat command as the origin of its event keeps it.
func StoredCommand(c *registryv1.ChatCommand) string {
	b, err := json.Marshal(chatcommand.Command{Name: c.GetName(), Args: c.GetArgs()})
	if err != nil { // two texts have a form
		return ""
	}
	return string(b)
}

// Command is the chat command that an event is; nil: it is a message. What cannot be read is one without a name,
// so that it never becomes a message for a model.
func Command(o *store.Origin) *registryv1.ChatCommand {
	if o == nil || o.Command == "" {
		return nil
	}
	var c chatcommand.Command
	_ = json.Unmarshal([]byte(o.Command), &c)
	return &registryv1.ChatCommand{Name: Text(c.Name), Args: Text(c.Args)}
}
