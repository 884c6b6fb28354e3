package route

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thread"
)

// MaxHops is how often agents may pass a message on.
const MaxHops = 8

// maxReadings bounds the search in a source whose ids hold colons.
const maxReadings = 256

// Of reads where an inbound event came from and makes the reply_context that its
// reply will carry.
//
// For an external source a reply_context in the content is copied byte for byte,
// unknown keys included (append it to the reply as it is: json.Marshal would
// compact and escape it); otherwise one is built. Content fields fill what an
// inexact source leaves open, and must not contradict it. For an internal source
// only the source counts, and `hops`. Content that is no JSON object is plain
// text and has no fields.
//
// The error is a [fault.Error]: INVALID_ARGUMENT for a source that names nobody
// to answer and for a contradiction, HOP_LIMIT for a message that agents have
// passed on too often.
func Of(src, content string) (Tuple, json.RawMessage, error) {
	a, missing, err := source.ParseLenient(src)
	if err != nil {
		return Tuple{}, nil, err
	}
	switch a.Kind {
	case source.Internal:
		if a.AboutProcess() {
			return ofProcess(content)
		}
		hops, err := Hops(content)
		if err != nil {
			return Tuple{}, nil, err
		}
		t := tupleOf(a)
		return t, internalContext(t, hops), nil
	case source.External:
		return external(src, a, missing, content)
	}
	return Tuple{}, nil, poison("an event from `self` has nobody to answer", "leave the source out when sending")
}

// ofProcess is [Of] for the registry's event about a process: it belongs to the author of the message
// whose turn started it, and the answer goes there. The field from holds that source, and no other
// process: the registry follows them to their beginning.
func ofProcess(content string) (Tuple, json.RawMessage, error) {
	var from string
	err := json.Unmarshal(object(content)["from"], &from)
	if a, _, bad := source.ParseLenient(from); err != nil || bad != nil || a.AboutProcess() {
		return Tuple{}, nil, poison("the event about a process does not name who started it", "only the registry writes such events")
	}
	return Of(from, content)
}

// CheckStated refuses a source that a caller may not state for a new message (S0-66,
// S0-67): only the exact form is accepted, and an external one whose ids hold colons where
// the content names the channel and the peer apart, as gateways write it. What other
// programs have stored is still read by [Of]. The error is INVALID_ARGUMENT.
func CheckStated(src, content string) error {
	a, missing, err := source.ParseLenient(src)
	if err != nil || len(missing) == 0 {
		return err
	}
	if a.Kind == source.External && slices.Equal(missing, []string{source.FieldAmbiguous}) {
		if c, err := claimOf(object(content)); err == nil && c.channelID != "" && c.peerID != "" {
			return nil
		}
	}
	if _, err = source.Parse(src); err == nil {
		return nil
	}
	return err
}

// Hops is how often the internal message was passed on already: the integer
// `hops` of its content, 0 without one. Who passes it on sends one more.
func Hops(content string) (int, error) {
	raw, ok := object(content)["hops"]
	if !ok || string(raw) == "null" {
		return 0, nil
	}
	n, err := strconv.Atoi(string(raw))
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > MaxHops:
		return 0, fault.New(codes.FailedPrecondition, fault.HopLimit,
			fmt.Sprintf("the message was passed on more than %d times", MaxHops),
			"let one of the agents answer a person instead")
	case err != nil || n < 0:
		return 0, poison("`hops` is not a whole number from 0", "send it as a number, or leave it out")
	}
	return n, nil
}

// claim is what the content says about its sender; an empty field says nothing.
type claim struct{ channelType, channelID, peerID, sessionID, visibility string }

func external(src string, a source.Address, missing []string, content string) (Tuple, json.RawMessage, error) {
	fields := object(content)
	c, err := claimOf(fields)
	if err != nil {
		return Tuple{}, nil, err
	}
	kinds := []string{c.channelType}
	given := fields["reply_context"]
	if given != nil && string(given) != "null" {
		inner, err := parseObject(given)
		if err != nil {
			return Tuple{}, nil, poison("`reply_context` is not a JSON object", "send an object, or leave it out")
		}
		ic, err := claimOf(inner)
		if err != nil {
			return Tuple{}, nil, err
		}
		kinds = append(kinds, ic.channelType)
		if c, err = c.merge(ic); err != nil {
			return Tuple{}, nil, err
		}
	} else {
		given = nil
	}
	if a, err = settle(src, a, missing, c); err != nil {
		return Tuple{}, nil, err
	}
	t := tupleOf(a)
	for _, k := range kinds {
		if k != "" && k != replyKind(t) && k != t.ChannelType || k == internalID {
			return Tuple{}, nil, disagree("channel_type")
		}
	}
	if given == nil {
		given = externalContext(t, c.visibility)
	}
	return t, given, nil
}

// settle finds the one reading of src that agrees with the claim.
func settle(src string, a source.Address, missing []string, c claim) (source.Address, error) {
	if len(missing) == 0 {
		return a, c.contradicts(a)
	}
	if c.channelID != "" && c.peerID != "" && c.sessionID != "" {
		// Everything is known but the session type: no search, whatever the length.
		full := source.Address{
			Kind: source.External, ChannelType: a.ChannelType,
			ChannelID: c.channelID, SessionID: c.sessionID, PeerID: c.peerID,
		}
		for _, st := range []string{source.DM, source.Group, source.Channel} {
			if full.SessionType = st; full.String() == src {
				return full, nil
			}
		}
	}
	var agreeing []source.Address
	readings := source.Readings(src, maxReadings)
	for _, r := range readings {
		if c.contradicts(r) == nil {
			agreeing = append(agreeing, r)
		}
	}
	switch {
	case len(agreeing) == 1 && len(readings) < maxReadings:
		return agreeing[0], nil
	case len(agreeing) > 0:
		return a, poison("the source can be read in more than one way", "send channel_id, session_id and peer_id in the content")
	case len(readings) > 0:
		return a, disagree("peer_id, session_id or channel_id")
	}
	// Not of the right form in any reading: what there is must agree, and the
	// content may fill the rest.
	if err := c.contradicts(a); err != nil {
		return a, err
	}
	if a.ChannelID == "" {
		a.ChannelID = c.channelID
	}
	if a.SessionID == "" {
		a.SessionID = c.sessionID
	}
	last := missing[len(missing)-1] == source.FieldAmbiguous
	if a.ChannelID == "" || last && c.peerID == "" {
		return a, poison("the source does not say clearly who wrote", "send channel_id and peer_id in the content")
	}
	return a, nil
}

// contradicts compares what both name.
func (c claim) contradicts(a source.Address) error {
	for _, f := range []struct{ name, claimed, stamped string }{
		{"channel_id", c.channelID, a.ChannelID},
		{"peer_id", c.peerID, a.PeerID},
		{"session_id", c.sessionID, a.SessionID},
	} {
		if f.claimed != "" && f.stamped != "" && f.claimed != f.stamped {
			return disagree(f.name)
		}
	}
	return nil
}

// merge joins the claims of the content and of its reply_context.
func (c claim) merge(d claim) (claim, error) {
	for _, f := range []struct {
		name string
		to   *string
		from string
	}{
		{"channel_id", &c.channelID, d.channelID},
		{"peer_id", &c.peerID, d.peerID},
		{"session_id", &c.sessionID, d.sessionID},
		{"visibility", &c.visibility, d.visibility},
	} {
		if *f.to != "" && f.from != "" && *f.to != f.from {
			return c, poison("`"+f.name+"` of the content and of its reply_context differ", "send the same in both")
		}
		*f.to = cmp.Or(*f.to, f.from)
	}
	return c, nil
}

func claimOf(fields map[string]json.RawMessage) (claim, error) {
	var c claim
	for name, to := range map[string]*string{
		"channel_type": &c.channelType, "channel_id": &c.channelID,
		"peer_id": &c.peerID, "session_id": &c.sessionID, "visibility": &c.visibility,
	} {
		if raw, ok := fields[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return c, poison("`"+name+"` in the content is not a text", "send it as a JSON string")
			}
		}
	}
	return c, nil
}

// object reads the content's top level; nil when it is no JSON object. Keys
// count exactly as written.
func object(content string) map[string]json.RawMessage {
	if !utf8.ValidString(content) {
		return nil
	}
	fields, err := parseObject([]byte(content))
	if err != nil {
		return nil
	}
	return fields
}

func parseObject(b []byte) (map[string]json.RawMessage, error) {
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		return nil, errors.New("no object")
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(b, &fields)
	return fields, err
}

// replyKind is the channel_type of a context made here for an external tuple.
func replyKind(t Tuple) string {
	if t.ChannelType == console {
		return console
	}
	return "external"
}

func externalContext(t Tuple, visibility string) json.RawMessage {
	b := member([]byte{'{'}, "channel_type", replyKind(t))
	b = member(b, "channel_id", t.ChannelID)
	b = member(b, "peer_id", t.PeerID)
	b = member(b, "session_id", t.SessionID)
	if visibility != "" {
		b = member(b, "visibility", visibility)
	}
	return append(b, '}')
}

func internalContext(t Tuple, hops int) json.RawMessage {
	b := member([]byte{'{'}, "channel_type", internalID)
	b = member(b, "channel_id", internalID)
	b = member(b, "peer_id", t.PeerID)
	b = member(b, "source_agent_id", t.PeerID)
	b = append(b, `,"hops":`...)
	return append(strconv.AppendInt(b, int64(hops), 10), '}')
}

func member(b []byte, key, value string) []byte {
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(thread.AppendString(b, key), ':')
	return thread.AppendString(b, value)
}

func disagree(field string) error {
	return poison("`"+field+"` in the content does not agree with the source", "send the ids that the source address has")
}

func poison(what, fix string) error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, what, fix)
}
