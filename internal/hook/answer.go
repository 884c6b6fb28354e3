package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
)

// maxReason is the most bytes of a reason.
const maxReason = 2 << 10

// Answer is what one hook answers. The zero value changes nothing.
type Answer struct {
	Cancel bool
	Reason string
	Text   *string // nil: unchanged
}

// Refusal is the answer of a hook that refuses what is about to happen, with what it wrote as the reason.
func Refusal(reason string) Answer {
	return Answer{Cancel: true, Reason: clip(reason)}
}

func clip(reason string) string {
	out, _ := boundary.Text(strings.TrimSpace(reason), maxReason)
	return out
}

// Parse reads the answer of a hook at an event: nothing, or one JSON object with fields that the event may change.
// A field that it may not change is an error, so that a guard whose answer is misspelled does not let everything pass.
func Parse(event string, output []byte) (a Answer, err error) {
	output = bytes.TrimSpace(output)
	switch {
	case len(output) == 0:
		return a, nil
	case len(output) > MaxJSON:
		return a, fmt.Errorf("its answer is longer than %d bytes", MaxJSON)
	case !utf8.Valid(output):
		return a, errors.New("its answer is not valid UTF-8")
	}
	s := find(event)
	if s == nil || len(s.fields) == 0 {
		return a, nil // it observes
	}
	var fields map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(output))
	if err := d.Decode(&fields); err != nil {
		return a, errors.New("its answer is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a, errors.New("its answer is more than one JSON object")
	}
	for name, value := range fields {
		var to any
		switch {
		case !slices.Contains(s.fields, name):
			return Answer{}, fmt.Errorf("its answer has the field %.64q; %s may have %s", name, event, strings.Join(s.fields, ", "))
		case name == "cancel":
			to = &a.Cancel
		case name == "reason":
			to = &a.Reason
		case name == "text":
			to = &a.Text
		}
		if json.Unmarshal(value, to) != nil {
			return Answer{}, fmt.Errorf("the field %s of its answer has the wrong type", name)
		}
	}
	a.Reason = clip(a.Reason)
	return a, nil
}
