package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// Variable is where a program finds its socket.
const Variable = "THECLAW_AGENT_BROKER"

// method is the only one.
const method = "CreateAgent"

// Request is a new agent that is asked for.
type Request struct {
	AgentID  string
	System   bool // its kind; else it is a user agent
	Provider string
	Model    string
}

// name is what an agent, a provider or a model may be called here; it is shown to a
// person as it stands.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$`)

// Check refuses what could not be shown. The registry checks the id.
func (r Request) Check() error {
	if !name.MatchString(r.AgentID) || len(r.AgentID) > 64 {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, "the id of the new agent is missing or invalid", "use up to 64 of a-z, 0-9, _ and -")
	}
	for flag, v := range map[string]string{"--provider": r.Provider, "--model": r.Model} {
		if v != "" && (!name.MatchString(v) || len(v) > 128) {
			return fault.New(codes.InvalidArgument, fault.InvalidArgument, flag+" is not a valid name", "use letters, digits and . _ : / @ + -")
		}
	}
	return nil
}

// Words is the command line that means it, as a person is asked about it.
func (r Request) Words() string {
	words := []string{"agent", "init", r.AgentID, "--kind", r.kind()}
	if r.Provider != "" {
		words = append(words, "--provider", r.Provider)
	}
	if r.Model != "" {
		words = append(words, "--model", r.Model)
	}
	return strings.Join(words, " ")
}

// Digest is what an approval is bound to. No command has the same.
func (r Request) Digest() string {
	var b strings.Builder
	for _, part := range []string{"make an agent", r.AgentID, r.kind(), r.Provider, r.Model} {
		b.WriteString(strconv.Itoa(len(part)) + ":" + part + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

func (r Request) kind() string {
	if r.System {
		return "system"
	}
	return "user"
}

// call is a Request on the socket: one line of JSON.
type call struct {
	Method   string `json:"method"`
	AgentID  string `json:"agent_id"`
	Kind     string `json:"kind,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
}

// answer is one line too.
type answer struct {
	Dir   string   `json:"dir,omitempty"`
	Error *problem `json:"error,omitempty"`
}

type problem struct {
	Code   codes.Code `json:"code"`
	Reason string     `json:"reason"`
	What   string     `json:"what"`
	Fix    string     `json:"fix"`
}

// decode reads a call, and refuses all that is not the one method.
func decode(line []byte) (Request, error) {
	var c call
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil || d.More() {
		return Request{}, refuse("the request is not understood")
	}
	switch {
	case c.Method != method:
		return Request{}, refuse(fmt.Sprintf("there is no method %.64q here", c.Method))
	case c.Kind != "" && c.Kind != "user" && c.Kind != "system":
		return Request{}, fault.New(codes.InvalidArgument, fault.InvalidArgument, "--kind must be user or system", "leave it out for a user agent")
	}
	r := Request{AgentID: c.AgentID, System: c.Kind == "system", Provider: c.Provider, Model: c.Model}
	return r, r.Check()
}

func refuse(what string) error {
	return fault.New(codes.PermissionDenied, fault.PermissionDenied, what, "this socket takes a new agent and nothing else: agent init ID")
}
