package route

import (
	"encoding/hex"
	"slices"
	"strings"
)

// Stored returns the thread ids that routing gives to what a person may mean by id, at most
// two; id itself is among them when routing gives it. It returns none for an id outside of
// the conversations of peers and channels, and for one without a peer.
//
// People write an id as they read the address: `prog-my-task` for the peer `my-task` of the
// channel `prog`. Routing stores that conversation as `prog-my%2Dtask`, while `prog-my-task` is
// the peer `task` of the channel `prog-my`.
func Stored(id string) []string {
	if name, ok := strings.CutPrefix(id, channelsDir); ok && !strings.Contains(name, "/") {
		return []string{channelsDir + stored(name, false)}
	}
	name, ok := strings.CutPrefix(id, peersDir)
	first, last := strings.IndexByte(name, '-'), strings.LastIndexByte(name, '-')
	if !ok || first < 0 || strings.Contains(name, "/") {
		return nil
	}
	out := []string{peersDir + stored(name[:first], false) + "-" + stored(name[first+1:], true)}
	if last != first {
		out = append(out, peersDir+stored(name[:last], false)+"-"+stored(name[last+1:], true))
	}
	return out
}

// Routable reports whether routing can give id to a conversation. An id of which Stored knows
// nothing is not judged: it is a thread that was made for another purpose.
func Routable(id string) bool {
	list := Stored(id)
	return len(list) == 0 || slices.Contains(list, id)
}

// stored is a segment as routing writes it: seg itself when it is one, else what its text is
// encoded to.
func stored(seg string, dash bool) string {
	raw, ok := Raw(seg)
	if !ok {
		if shortened(seg) {
			return seg
		}
		return encode(seg, dash, false)
	}
	if encode(raw, dash, true) == seg { // a reserved name of a channel
		return seg
	}
	return encode(raw, dash, false)
}

// shortened reports whether seg has the form that shorten gives.
func shortened(seg string) bool {
	head, sum, ok := strings.Cut(seg, "~")
	if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 32 || strings.ToLower(sum) != sum || len(head) > keptSegment {
		return false
	}
	_, ok = Raw(head)
	return ok
}
