package channel

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
)

// FateByConfiguration is the fate of an event for which [Choose] finds no
// channel: it is acknowledged, and nothing is sent.
const FateByConfiguration = "not delivered by configuration"

// Settings is what delivery takes from an agent's configuration. It is data
// and holds references to secrets, never their values.
type Settings struct {
	Outbound []Rule                // nil: key absent, everything goes to xgw; empty: no external delivery
	Channels map[string]Definition // entries of `channels:` by name
	// Account is the account of the home by which the message came that is answered, and its type;
	// empty: none. One that can send is in Channels, too.
	Account, AccountType string
	XGW                  XGW
}

// Rule is one entry of `outbound:`.
type Rule struct {
	ThreadPattern string // glob over the thread id without its leading threads/
	Via           string // a built-in name or a key of Settings.Channels
}

// XGW is how the xgw program is started.
type XGW struct {
	Path        string        // default xgw, searched in PATH
	SessionFlag string        // default --session, corrected once by asking the program
	Timeout     time.Duration // of one send; default 60 s
}

// Validate returns every mistake of s, joined. Choose may rely on settings that
// passed. Package catalog checks the entries of Channels.
func (s Settings) Validate() error {
	var errs []error
	for i, r := range s.Outbound {
		if problem := CheckPattern(r.ThreadPattern); problem != "" {
			errs = append(errs, fmt.Errorf("outbound[%d].thread_pattern: %s", i, problem))
		}
		if _, ok := s.Channels[r.Via]; !ok && !IsBuiltin(r.Via) {
			errs = append(errs, fmt.Errorf("outbound[%d].via: %q is neither a built-in channel nor an entry of channels", i, Clean(r.Via, 64)))
		}
	}
	return errors.Join(errs...)
}

// Choose names the channel of a reply in threadID, or reports false when the
// configuration wants none. Without outbound rules a reply to a message of an account goes out
// by that account. source is the address of the message answered;
// where it is known it outranks the reply context, so that words of an
// external peer never reach another agent's inbox by naming it.
func Choose(s Settings, threadID, source string, rc ReplyContext) (via string, ok bool) {
	kind := origin(source, rc)
	switch id := rc.ChannelID(); {
	case kind == NameInternal, kind == NameConsole:
		return kind, true
	case s.Outbound == nil && id != "" && id == s.Account && (kind == s.AccountType || kind == externalType):
		if _, ok := s.Channels[id]; ok {
			return id, true
		}
		return "", false
	}
	return Via(s.Outbound, threadID)
}

// Via names the channel that a configuration gives to a thread (an id such as
// threads/peers/cli-cli): the first matching rule. Without rules (nil) that is xgw for
// everything below threads/; ok is false when nothing is to be sent.
func Via(rules []Rule, threadID string) (via string, ok bool) {
	id, ok := strings.CutPrefix(threadID, prefix)
	if !ok {
		return "", false
	}
	if rules == nil {
		return NameXGW, true
	}
	for _, r := range rules {
		if matchThread(strings.TrimPrefix(r.ThreadPattern, prefix), id) {
			return r.Via, true
		}
	}
	return "", false
}

// externalType is the channel_type of a reply_context that does not say which platform it is.
const externalType = "external"

// prefix begins the ids of conversation threads. A pattern may have it, too.
const prefix = "threads/"

// origin returns internal, console, or the type of an external channel. It
// reads the first two words only and never fails: an address that is unreadable
// further on is still an external one, and must not be taken for unknown.
func origin(address string, rc ReplyContext) string {
	scheme, rest, _ := strings.Cut(address, ":")
	switch scheme {
	case "internal":
		return NameInternal
	case "external":
		kind, _, _ := strings.Cut(rest, ":")
		if kind == NameInternal {
			return ""
		}
		return kind
	default:
		return rc.ChannelType()
	}
}

// CheckPattern returns what is wrong with a thread_pattern, or an empty text.
func CheckPattern(p string) string {
	if p == "" || len(p) > 512 || strings.HasPrefix(p, "/") || strings.ContainsFunc(p, unicode.IsControl) {
		return "thread_pattern must be a glob below threads/ such as ** or peers/**"
	}
	for s := range strings.SplitSeq(p, "/") {
		if _, err := path.Match(s, ""); err != nil || s == "" || s == "." || s == ".." {
			return fmt.Sprintf("%q is not a glob below threads/ (such as ** or peers/**)", Clean(p, 57))
		}
	}
	return ""
}

// matchThread reports whether pattern covers all of id. A segment ** is
// any number of segments, none included; any other is a path.Match pattern for
// exactly one. Only the last ** met is ever widened, so the work is bounded by
// the product of the two lengths.
func matchThread(pattern, id string) bool {
	p, t := strings.Split(pattern, "/"), strings.Split(id, "/")
	pi, ti, star, mark := 0, 0, -1, 0
	for ti < len(t) {
		if pi < len(p) && p[pi] == "**" {
			star, mark = pi, ti
			pi++
			continue
		}
		if pi < len(p) {
			if ok, err := path.Match(p[pi], t[ti]); ok && err == nil {
				pi, ti = pi+1, ti+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		pi, ti = star+1, mark
	}
	for pi < len(p) && p[pi] == "**" {
		pi++
	}
	return pi == len(p)
}
