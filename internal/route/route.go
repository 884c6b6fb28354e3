// Package route maps an inbound event to its conversation: the thread it belongs to, the
// files named after that thread and its peer, and the context that addresses the reply.
//
//	source, content --Of--> Tuple, reply_context
//	                          |
//	     routing.default      v
//	     per-peer     threads/peers/<channel_id>-<peer_id>
//	     per-channel  threads/channels/<channel_id>
//	     per-agent    threads/main
//
// It promises that different (channel, peer) pairs never share a path, that no id leads
// out of the agent's directory, and that what the content states about its sender counts
// only for external events and only when it agrees with the source, which the registry
// stamped. The directory names of the earlier tools stay as they are wherever they were
// unambiguous.
//
// Ids are encoded, not checked: any byte string is a peer. An error from [Of] means that
// the event can never be routed; such an event is poison and is accounted for as dead, not
// retried.
//
// It reads and writes no file and keeps no table; which mode applies to which event is the
// registry's record (x_route).
package route

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
)

// Mode is the value of routing.default.
type Mode string

// The modes.
const (
	PerPeer    Mode = "per-peer"
	PerChannel Mode = "per-channel"
	PerAgent   Mode = "per-agent"
)

// ParseMode reads routing.default; empty means [PerPeer]. The error has reason
// CONFIG_INVALID.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return PerPeer, nil
	case PerPeer, PerChannel, PerAgent:
		return m, nil
	}
	return "", fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
		fmt.Sprintf("routing.default is %q", s), "write per-peer, per-channel or per-agent")
}

// Names with a meaning of their own as a channel id.
const (
	internalID = "internal"
	consoleID  = "cli"
	console    = "console" // a channel type
)

// Where threads live in an agent's directory.
const (
	peersDir    = "threads/peers/"
	channelsDir = "threads/channels/"
	mainDir     = "threads/main"
)

// Tuple is where an event came from, in the ids as they were given.
type Tuple struct {
	// Internal: another agent wrote; then ChannelType and ChannelID are
	// "internal" and PeerID is the agent's id.
	Internal    bool   `json:"internal,omitempty"`
	ChannelType string `json:"channel_type"`
	ChannelID   string `json:"channel_id"`
	PeerID      string `json:"peer_id"`
	SessionType string `json:"session_type,omitempty"`
	SessionID   string `json:"session_id,omitempty"`
}

// tupleOf turns a complete address into a tuple.
func tupleOf(a source.Address) Tuple {
	if a.Kind == source.Internal {
		return Tuple{
			Internal: true, ChannelType: internalID, ChannelID: internalID,
			PeerID: a.AgentID, SessionType: a.ConvType, SessionID: a.ConvID,
		}
	}
	return Tuple{
		ChannelType: a.ChannelType, ChannelID: a.ChannelID,
		PeerID: a.PeerID, SessionType: a.SessionType, SessionID: a.SessionID,
	}
}

// channel is the segment of the channel. The names `internal` and `cli` belong
// to other agents and to the chat; a configured channel that is called so gets
// another segment, or its peers could write into their threads.
func (t Tuple) channel() string {
	own := t.Internal || t.ChannelType == console && t.ChannelID == consoleID
	reserved := t.ChannelID == internalID || t.ChannelID == consoleID
	return encode(t.ChannelID, false, reserved && !own)
}

// pair is channel and peer in one segment; the peer's part has no '-', so the
// last one separates them.
func (t Tuple) pair() string {
	return t.channel() + "-" + encode(t.PeerID, true, false)
}

// Thread is the path of the conversation thread, relative to the agent's
// directory and with forward slashes. It is also the thread's id. A mode that is
// not one of the constants counts as [PerPeer].
func Thread(m Mode, t Tuple) string {
	switch m {
	case PerChannel:
		return channelsDir + t.channel()
	case PerAgent:
		return mainDir
	}
	return peersDir + t.pair()
}

// MemoryAgentFile is the file in memory/ about everything.
const MemoryAgentFile = "agent.md"

// SessionFile is the name in sessions/ for the thread: its id with '/' as %2F.
func SessionFile(threadID string) string { return stem(threadID) + ".jsonl" }

// MemoryUserFile is the name in memory/ for the peer across all threads.
func MemoryUserFile(t Tuple) string { return "user-" + t.pair() + ".md" }

// MemoryThreadFile is the name in memory/ for the thread.
func MemoryThreadFile(threadID string) string { return "thread-" + stem(threadID) + ".md" }

// MemoryPastFile is the name in memory/past/ for a digest of the thread, of an epoch that has
// ended: digested is the last event in it. With a mark it is one more for the same event.
func MemoryPastFile(threadID string, digested int64, mark string) string {
	if mark != "" {
		mark = "." + mark
	}
	return pastStem(threadID) + strconv.FormatInt(digested, 10) + mark + ".md"
}

// IsMemoryPastFile reports whether a name is one that [MemoryPastFile] makes for the thread, with
// a mark of letters and digits. A longer id of another thread never looks like one: it is
// followed by one part more.
func IsMemoryPastFile(threadID, name string) bool {
	rest, ok := strings.CutPrefix(name, pastStem(threadID))
	rest, md := strings.CutSuffix(rest, ".md")
	digested, mark, marked := strings.Cut(rest, ".")
	if _, err := strconv.ParseUint(digested, 10, 63); err != nil || !ok || !md {
		return false
	}
	return !marked || len(mark) == MemoryPastMark && !strings.Contains(mark, ".")
}

// MemoryPastMark is the length of a mark.
const MemoryPastMark = 12

func pastStem(threadID string) string { return strings.TrimSuffix(MemoryThreadFile(threadID), "md") }

// stem makes a file name of a thread id: '/' becomes %2F. Only ids of ours may
// hold a %2F of their own, so a foreign id that could meet one of them, every id
// that looks shortened, and every long one, is shortened like a segment, which
// keeps the names apart.
func stem(threadID string) string {
	name := strings.ReplaceAll(threadID, "/", "%2F")
	limit := maxSegment
	rest, peers := strings.CutPrefix(threadID, peersDir)
	rest, channels := strings.CutPrefix(rest, channelsDir)
	ours := (peers != channels) && !strings.Contains(rest, "/")
	if strings.Contains(threadID, "~") || !ours && (peers || channels || strings.Contains(threadID, "%")) {
		limit = 0
	}
	return shorten(name, threadID, limit)
}
