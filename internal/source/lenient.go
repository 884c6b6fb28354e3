package source

import (
	"slices"
	"strings"
)

// Names of the fields as [ParseLenient] reports them.
const (
	FieldChannelType = "channel_type"
	FieldChannelID   = "channel_id"
	FieldSessionType = "session_type"
	FieldSessionID   = "session_id"
	FieldConvType    = "conv_type"
	FieldConvID      = "conv_id"
	// FieldAmbiguous: there are more colons than separators, so another reading
	// of the parts is possible; see [Readings].
	FieldAmbiguous = "ambiguous"
)

// ParseLenient reads an address that another tool wrote, down to the kind and
// the writer, and reports which fields were missing, were not in the exact form,
// or had to be guessed (the Field constants, in the order of the address). A
// missing conversation id reads as "default", other missing fields stay empty.
// Ids may hold control characters and be long: people choose their names, and a
// gateway passes them on. An address without a writer, with NUL or with bytes that
// are no text is the same error as from [Parse].
func ParseLenient(s string) (Address, []string, error) {
	if problem := unreadable(s); problem != "" {
		return Address{}, nil, invalid(s, problem)
	}
	if a, err := parse(s); err == nil {
		return a, nil, nil
	}
	kind, rest, _ := strings.Cut(s, ":")
	parts := strings.Split(rest, ":")
	last := parts[len(parts)-1]
	switch {
	case kind != "external" && kind != "internal":
		return Address{}, nil, invalid(s, "it begins with none of external:, internal:, self")
	case last == "":
		return Address{}, nil, invalid(s, "it does not name who wrote")
	case kind == "internal":
		a, missing := lenientInternal(parts)
		return a, missing, nil
	case len(parts) < 3:
		return Address{}, nil, invalid(s, "it does not name the channel and the peer")
	}
	a, missing := lenientExternal(parts)
	return a, missing, nil
}

// lenientInternal reads [conv_type:[conv_id:]]agent_id; the middle takes what
// colons are left over.
func lenientInternal(parts []string) (Address, []string) {
	n := len(parts)
	a := Address{Kind: Internal, AgentID: parts[n-1]}
	if n >= 2 {
		a.ConvType = parts[0]
	}
	if n >= 3 {
		a.ConvID = strings.Join(parts[1:n-1], ":")
	}
	var missing []string
	if !word(a.ConvType) {
		missing = append(missing, FieldConvType)
	}
	if a.ConvID == "" {
		a.ConvID = DefaultConv
		missing = append(missing, FieldConvID)
	}
	if n > 3 {
		missing = append(missing, FieldAmbiguous)
	}
	return a, missing
}

// lenientExternal reads channel_type:channel_id:[session_type:][session_id:]peer_id
// with at least three parts.
func lenientExternal(parts []string) (Address, []string) {
	n := len(parts)
	a := Address{Kind: External, ChannelType: parts[0], ChannelID: parts[1], PeerID: parts[n-1]}
	middle := parts[2 : n-1]
	if len(middle) > 1 || len(middle) == 1 && sessionType(middle[0]) {
		a.SessionType, middle = middle[0], middle[1:]
	}
	a.SessionID = strings.Join(middle, ":")
	var missing []string
	if !word(a.ChannelType) {
		missing = append(missing, FieldChannelType)
	}
	if a.ChannelID == "" {
		missing = append(missing, FieldChannelID)
	}
	if !sessionType(a.SessionType) {
		missing = append(missing, FieldSessionType)
	}
	if a.SessionID == "" {
		missing = append(missing, FieldSessionID)
	}
	if n > 5 {
		missing = append(missing, FieldAmbiguous)
	}
	return a, missing
}

// Readings lists every external address that prints as s, when the ids may hold
// colons, at most max of them. A gateway that writes such ids also writes them
// apart in the content, which decides between the readings.
func Readings(s string, max int) []Address {
	parts := strings.Split(s, ":")
	// Without a channel type no reading holds; trying them all would be cubic.
	if unreadable(s) != "" || parts[0] != "external" || len(parts) < 6 || !word(parts[1]) {
		return nil
	}
	join := func(i, j int) string { return strings.Join(parts[i:j], ":") }
	var all []Address
	for t := 3; t < len(parts)-2; t++ { // where the session type stands
		if !sessionType(parts[t]) {
			continue
		}
		for p := t + 2; p < len(parts); p++ { // where the peer id begins
			a := Address{
				Kind: External, ChannelType: parts[1], ChannelID: join(2, t),
				SessionType: parts[t], SessionID: join(t+1, p), PeerID: join(p, len(parts)),
			}
			if a.problem() == "" {
				if all = append(all, a); len(all) == max {
					return all
				}
			}
		}
	}
	return all
}

func sessionType(s string) bool {
	return slices.Contains([]string{DM, Group, Channel}, s)
}
