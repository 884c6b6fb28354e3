package config

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Marshal writes every setting of c that a config.yaml may have. What package layer reads back equals c in them, except
// that a nil and an empty Channels are both no channel.
func Marshal(c Config) []byte {
	var b bytes.Buffer
	var open []string // the groups that the last line is in
	for i := range fields {
		f := &fields[i]
		if text, ok := f.Ref(&c).(*string); ok && *text == "" && f.Check(&c) != "" {
			continue // no value means the default; there is no way to write that
		}
		if c.Approvals != "" && (f.Key == "tools.exec.security" || f.Key == "tools.exec.ask") {
			continue // approvals means both
		}
		if f.OfHome {
			continue
		}
		path := strings.Split(f.Key, ".")
		at := len(path) - 1
		same := 0
		for same < len(open) && same < at && open[same] == path[same] {
			same++
		}
		for ; same < at; same++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", same), path[same])
		}
		fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", at), path[at], f.Render(&c))
		open = path[:at]
		if f.Key == "tools.deny" && len(c.Tools.ByProvider) > 0 {
			fmt.Fprintf(&b, "  by_provider: %s\n", flowProviders(c.Tools.ByProvider))
		}
	}
	if c.Outbound != nil {
		fmt.Fprintf(&b, "outbound: %s\n", FlowOutbound(c.Outbound))
	}
	if len(c.Channels) > 0 {
		b.WriteString("channels:\n")
		for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
			fmt.Fprintf(&b, "  %s: %s\n", Quote(name), FlowChannel(c.Channels[name]))
		}
	}
	return b.Bytes()
}

// Parse stores a value given as text (a command line, a variable).
func (f *Field) Parse(c *Config, s string) (problem string) {
	switch ref := f.Ref(c).(type) {
	case *string:
		*ref = s
	case *int:
		problem = ParseNumber(s, ref)
	case *bool:
		switch s {
		case "true", "false":
			*ref = s == "true"
		default:
			problem = "must be true or false"
		}
	case *Switch:
		problem = ParseSwitch(s, ref)
	case *Network:
		problem = ParseNetwork(s, ref)
	case *Amount:
		*ref = Amount(s)
	case *Variables:
		problem = parseVariables(s, ref)
	case *Delay:
		problem = ParseDelay(s, ref)
	case *Transcribe:
		problem = ParseTranscribe(s, ref)
	case *time.Duration:
		problem = ParseDuration(s, ref)
	case *[]string:
		*ref = parseList(s)
	}
	if problem == "" {
		problem = f.Check(c)
	}
	return problem
}

// Show writes the value for a reader.
func (f *Field) Show(c *Config) string {
	switch ref := f.Ref(c).(type) {
	case *string:
		return *ref
	case *int:
		return strconv.Itoa(*ref)
	case *bool:
		return strconv.FormatBool(*ref)
	case *Switch:
		return string(*ref)
	case *Network:
		return ref.String()
	case *Amount:
		return string(*ref)
	case *Variables:
		return ref.String()
	case *Delay:
		return ref.String()
	case *Transcribe:
		return ref.String()
	case *time.Duration:
		return Duration(*ref)
	case *[]string:
		return FlowList(*ref)
	}
	return ""
}

// Render writes the value for a YAML file.
func (f *Field) Render(c *Config) string {
	switch ref := f.Ref(c).(type) {
	case *string:
		return Quote(*ref)
	case *Amount:
		return Quote(string(*ref))
	case *Network:
		if len(ref.Hosts) == 0 {
			return Quote(ref.String())
		}
	case *Delay:
		if *ref == (Delay{}) {
			return Quote(ref.String())
		}
	case *Transcribe:
		if ref.Off() {
			return Quote(ref.String())
		}
	}
	return f.Show(c)
}

// FlowList writes a list on one line of YAML.
func FlowList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// parseList reads what FlowList writes of words without commas and quotes, also without the
// brackets.
func parseList(s string) (list []string) {
	s = strings.TrimSpace(s)
	if in, ok := strings.CutPrefix(s, "["); ok {
		s = strings.TrimSuffix(in, "]")
	}
	for part := range strings.SplitSeq(s, ",") {
		if word := strings.Trim(strings.TrimSpace(part), `'"`); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// ParseNumber reads a whole number, ParseDuration what Go writes as 90s or 24h, ParseSwitch
// true, false or auto; each answers what is wrong.
func ParseNumber(s string, to *int) string {
	n, err := strconv.Atoi(s)
	if err != nil || !wholeNumber.MatchString(s) {
		return fmt.Sprintf("must be a whole number, not %.40q", s)
	}
	*to = n
	return ""
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})$`)

// ParseDuration reads a duration such as 24h; see [ParseNumber].
func ParseDuration(s string, to *time.Duration) string {
	d, err := time.ParseDuration(s)
	if err != nil {
		return "must be a duration such as 90s or 24h"
	}
	*to = d
	return ""
}

// ParseSwitch reads a [Switch]; see [ParseNumber].
func ParseSwitch(s string, to *Switch) string {
	switch v := Switch(s); v {
	case On, Off, Auto:
		*to = v
		return ""
	}
	return "must be true, false or auto"
}

// Duration writes 24h, not 24h0m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var (
	plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./@+-]*$`)
	keyword   = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n|nan|inf)$`)
)

// Quote writes s as a YAML scalar that is always read as text.
func Quote(s string) string {
	if plainText.MatchString(s) && !keyword.MatchString(s) {
		return s
	}
	// Single quotes know no escapes, so only a quote itself needs care.
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return strconv.QuoteToASCII(s)
}

// FlowOutbound writes the list on one line of YAML.
func FlowOutbound(list []Outbound) string {
	parts := make([]string, len(list))
	for i, o := range list {
		parts[i] = "{thread_pattern: " + Quote(o.ThreadPattern) + ", via: " + Quote(o.Via) + "}"
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// FlowChannel writes a channel on one line of YAML.
func FlowChannel(c Channel) string {
	s := "{type: " + Quote(c.Type)
	if c.URL != "" {
		s += ", url: " + Quote(c.URL)
	}
	if c.Secret != "" {
		s += ", secret: " + Quote(c.Secret)
	}
	if c.AllowPrivate {
		s += ", allow_private: true"
	}
	return s + "}"
}
