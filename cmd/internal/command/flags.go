package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Choice is a flag with a fixed set of values.
type Choice struct {
	Value  string
	Values []string
	Kind   string // what help shows for the value; empty: the values
}

// String, Set and Type make a Choice a flag.
func (c *Choice) String() string { return c.Value }

// Set refuses what is not one of the values.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Values, s) {
		return fmt.Errorf("use %s", strings.Join(c.Values, " or "))
	}
	c.Value = s
	return nil
}

// Type is what help shows for the value.
func (c *Choice) Type() string { return cmp.Or(c.Kind, strings.Join(c.Values, "|")) }

// value is a flag that is read by a function.
type value struct {
	set  func(string) error
	text string // as it is shown
	kind string
	of   *Kind // of a flag that takes a text
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(s string) error {
	if v.of != nil {
		if err := v.of.verify("the "+v.of.Noun, s, ""); err != nil {
			return err
		}
	}
	err := v.set(s)
	if err == nil {
		v.text = s
	}
	return err
}

// AgentFlag adds --agent, the id of one agent.
func AgentFlag(c *cobra.Command, id *string, help string) {
	TextFlag(c.Flags(), id, "agent", Agent, help)
}

// AgentsFlag adds --agent, the id of an agent, which may be repeated.
func AgentsFlag(c *cobra.Command, ids *[]string, help string) {
	TextsFlag(c.Flags(), ids, "agent", Agent, help+"; may be repeated")
}

// NumberFlag adds a flag that is a number from least to most; n has its default. The name
// may have a letter behind a comma.
func NumberFlag[N ~int | ~int32 | ~int64](c *cobra.Command, n *N, name string, least, most N, help string) {
	name, short, _ := strings.Cut(name, ",")
	c.Flags().VarP(&value{kind: "int", text: strconv.FormatInt(int64(*n), 10), set: func(s string) error {
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil || i < int64(least) || i > int64(most) {
			return fmt.Errorf("use a number from %d to %d", least, most)
		}
		*n = N(i)
		return nil
	}}, name, short, help)
}

// SinceFlag adds --since, a time in the past as [Past] reads it.
func SinceFlag(c *cobra.Command, at *time.Time, help string) {
	c.Flags().Var(&value{kind: "time", set: func(s string) (err error) {
		if s == "" { // a script whose variable is empty does not mean all time
			return errors.New("it is empty; give a time such as 24h, 7d or 2006-01-02")
		}
		*at, err = Past(s, time.Now())
		return err
	}}, "since", help+": 24h, 7d or 2006-01-02 (UTC)")
}

// DurationFlag adds a flag that is a length of time as [Duration] reads it; d has its
// default.
func DurationFlag(f *pflag.FlagSet, d *time.Duration, name, help string) {
	text := d.String()
	if day := 24 * time.Hour; *d > 0 && *d%day == 0 {
		text = fmt.Sprintf("%dd", *d/day)
	}
	f.Var(&value{kind: "duration", text: text, set: func(s string) (err error) {
		*d, err = Duration(s)
		return err
	}}, name, help)
}
