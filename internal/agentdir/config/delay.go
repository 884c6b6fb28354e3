package config

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Delay is the pause before a further message of one run. The zero value is none.
type Delay struct {
	// Min and Max bound it; its length between them differs from message to message.
	Min, Max time.Duration
}

// natural is the pause of a person who writes.
var natural = Delay{Min: 800 * time.Millisecond, Max: 2500 * time.Millisecond}

// The words for a delay without bounds.
const (
	delayOff     = "off"
	delayNatural = "natural"
)

// maxDelay is the longest pause.
const maxDelay = 30 * time.Second

// String writes the value for a reader, and for YAML: off, natural or the bounds.
func (d Delay) String() string {
	switch d {
	case Delay{}:
		return delayOff
	case natural:
		return delayNatural
	}
	return "{min: " + Duration(d.Min) + ", max: " + Duration(d.Max) + "}"
}

// For is the pause before the message with a key. It is the same each time it is asked for.
func (d Delay) For(key string) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return d.Min + time.Duration(h.Sum64()%uint64(d.Max-d.Min+1))
}

// ParseDelay reads off, natural, or bounds such as {min: 500ms, max: 2s}. See [ParseNumber].
func ParseDelay(s string, to *Delay) string {
	switch s = strings.TrimSpace(s); s {
	case delayOff:
		*to = Delay{}
		return ""
	case delayNatural:
		*to = natural
		return ""
	}
	var bounds Variables
	if problem := parseVariables(s, &bounds); problem != "" || !strings.HasPrefix(s, "{") {
		return "must be off, natural, or bounds such as {min: 500ms, max: 2s}"
	}
	return DelayOf(bounds, to)
}

// DelayOf reads the bounds min and max, both of which are needed. See [ParseNumber].
func DelayOf(bounds map[string]string, to *Delay) string {
	var d Delay
	for name, ref := range map[string]*time.Duration{"min": &d.Min, "max": &d.Max} {
		text, ok := bounds[name]
		if !ok {
			return "has no " + name + "; the bounds are such as {min: 500ms, max: 2s}"
		}
		if problem := ParseDuration(text, ref); problem != "" {
			return name + " " + problem
		}
	}
	if len(bounds) > 2 {
		return "has more than min and max"
	}
	*to = d
	return ""
}

// delay is the rule of a [Delay].
func delay() Rule {
	return Rule{Form: "off, natural (800ms to 2.5s), or {min, max} with min <= max <= 30s", check: func(v any) string {
		if d := *v.(*Delay); d.Min < 0 || d.Min > d.Max || d.Max > maxDelay {
			return fmt.Sprintf("min %s and max %s are not 0s <= min <= max <= %s", Duration(d.Min), Duration(d.Max), Duration(maxDelay))
		}
		return ""
	}}
}
