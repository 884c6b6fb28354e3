package hook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Names of events.
const (
	MessageReceived = "message_received" // before a message is stored
	MessageSending  = "message_sending"  // before a message leaves
	MessageSent     = "message_sent"     // after a try to send one
	Command         = "command"          // a chat command, whichever
	CommandNew      = "command:new"
	CommandReset    = "command:reset"
	CommandStop     = "command:stop"
	SessionStart    = "session_start"
	SessionEnd      = "session_end"
	GatewayStart    = "gateway_start"
	GatewayStop     = "gateway_stop"
)

// MaxJSON is the most bytes of an event and of an answer, as JSON.
const MaxJSON = 256 << 10

// spec is what holds for an event.
type spec struct {
	name    string
	of      string   // the general event; empty: it has none
	fields  []string // of an answer; none: the event only observes
	closed  bool     // a failure stops what is about to happen, unless the hook says otherwise
	home    bool     // set in theclaw.yaml, because no agent is chosen yet
	channel bool     // it has an account
}

var specs = []spec{
	{name: MessageReceived, fields: []string{"cancel", "reason"}, home: true, channel: true},
	{name: MessageSending, fields: []string{"cancel", "reason", "text"}, closed: true, channel: true},
	{name: MessageSent, channel: true},
	{name: Command, channel: true},
	{name: CommandNew, of: Command, channel: true},
	{name: CommandReset, of: Command, channel: true},
	{name: CommandStop, of: Command, channel: true},
	{name: SessionStart, channel: true},
	{name: SessionEnd, channel: true},
	{name: GatewayStart, home: true},
	{name: GatewayStop, home: true},
}

// find returns what holds for an event; nil: there is none of this name.
func find(name string) *spec {
	if i := slices.IndexFunc(specs, func(s spec) bool { return s.name == name }); i >= 0 {
		return &specs[i]
	}
	return nil
}

// Known returns the names of all events that are called.
func Known() []string {
	out := make([]string, len(specs))
	for i, s := range specs {
		out[i] = s.name
	}
	return out
}

// OfTurn returns the events that the runner calls in a turn.
func OfTurn() []string {
	return []string{Command, CommandNew, CommandReset, CommandStop, SessionStart, SessionEnd}
}

// CommandEvent is the event of the chat command with a name.
func CommandEvent(command string) string {
	if name := Command + ":" + command; find(name) != nil {
		return name
	}
	return Command
}

// Event is what hooks are called with. Its JSON is {event, id, agent, session_key, run_id, source, at,
// payload}; fields are only added to it.
type Event struct {
	Name string
	// Key is the same in each repetition of the event; with the names of the event and the hook it is the id.
	Key        string
	Agent      string // empty for events before an agent is chosen
	SessionKey string
	RunID      string
	Source     string
	At         time.Time
	Payload    Payload
}

// Payload is what an event is about. An event has the fields of its kind and no others.
type Payload struct {
	// Of messages. Account is that of the platform, also of commands and sessions.
	Account     string       `json:"account,omitempty"`
	Peer        string       `json:"peer,omitempty"`
	Text        string       `json:"text,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
	Result      *Result      `json:"result,omitempty"`
	// Of commands.
	Command string `json:"name,omitempty"`
	Args    string `json:"args,omitempty"`
	// Of sessions.
	SessionID string `json:"session_id,omitempty"`
	Previous  string `json:"previous,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Attachment describes a file of a message.
type Attachment struct {
	Name string `json:"name"`
	MIME string `json:"mime,omitempty"`
	Size int64  `json:"size,omitempty"` // bytes; 0: not known
}

// Result is how a try to send a message ended.
type Result struct {
	Status     string `json:"status"` // sent, failed or rejected
	Channel    string `json:"channel"`
	ProviderID string `json:"provider_id,omitempty"`
	Attempt    int    `json:"attempt"`
	Error      string `json:"error,omitempty"`
}

// encode is the event for one hook.
func (e *Event) encode(hook string) ([]byte, error) {
	b, err := json.Marshal(struct { //nolint:gosec // the key of a session is no secret
		Event      string    `json:"event"`
		ID         string    `json:"id"`
		Agent      string    `json:"agent"`
		SessionKey string    `json:"session_key"`
		RunID      string    `json:"run_id"`
		Source     string    `json:"source"`
		At         time.Time `json:"at"`
		Payload    Payload   `json:"payload"`
	}{e.Name, strings.Join([]string{e.Key, e.Name, hook}, ":"), e.Agent, e.SessionKey, e.RunID, e.Source, e.At.UTC().Truncate(time.Millisecond), e.Payload})
	if err == nil && len(b) > MaxJSON {
		err = fmt.Errorf("the event has %d bytes, and %d are the most", len(b), MaxJSON)
	}
	return b, err
}
