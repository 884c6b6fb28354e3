package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S3-103: voice messages are made into text by nothing, by a provider or by a command.
func TestTranscribe(t *testing.T) {
	f := Lookup("media.transcribe")
	for text, want := range map[string]struct {
		value   Transcribe
		problem string
	}{
		"off":                            {Transcribe{}, ""},
		"{provider: openai}":             {Transcribe{Provider: "openai"}, ""},
		" {provider: x, model: whisper}": {Transcribe{Provider: "x", Model: "whisper"}, ""},
		"{command: [whisper-cli, -m, 'a, b''s', \"{file}\"], timeout: 5m}": {Transcribe{Command: []string{"whisper-cli", "-m", "a, b's", "{file}"}, Timeout: 5 * time.Minute}, ""},
		"":                            {Transcribe{}, "must be off, {provider"},
		"openai":                      {Transcribe{}, "must be off, {provider"},
		"{openai}":                    {Transcribe{}, "must be off, {provider"},
		"{}":                          {Transcribe{}, ""},
		"{model: x}":                  {Transcribe{}, "needs a provider or a command"},
		"{timeout: 1m}":               {Transcribe{}, "needs a provider or a command"},
		"{command: [x], model: y}":    {Transcribe{}, "needs a provider or a command"},
		"{provider: a, command: [b]}": {Transcribe{}, "keep one of them"},
		"{provider: a b}":             {Transcribe{}, "is not a name"},
		"{provider: a, timeout: 1}":   {Transcribe{}, "timeout must be a duration"},
		"{provider: a, timeout: 0s}":  {Transcribe{}, "timeout must be above"},
		"{provider: a, timeout: 1h}":  {Transcribe{}, "not between 1s and 30m"},
		"{provider: a, key: b}":       {Transcribe{}, `has no "key"`},
		"{command: x}":                {Transcribe{}, "command must be a list"},
		"{command: ['']}":             {Transcribe{}, "word 1 of command is empty"},
		"{command: [a, \"b\x00\"]}":   {Transcribe{}, "word 2 of command"},
		"{command: [" + strings.Repeat("a,", 65) + "]}": {Transcribe{}, "64 are the most"},
	} {
		c := Default()
		problem := f.Parse(&c, text)
		if (problem == "") != (want.problem == "") || !strings.Contains(problem, want.problem) || problem == "" && !cmp.Equal(c.Media.Transcribe, want.value) {
			t.Errorf("%q: %v, %q", text, c.Media.Transcribe, problem)
		}
		if problem != "" {
			continue
		}
		again := Default()
		if problem := f.Parse(&again, f.Show(&c)); problem != "" || !cmp.Equal(again.Media, c.Media) {
			t.Errorf("%q is shown as %q: %s", text, f.Show(&c), problem)
		}
	}
	for _, c := range []struct {
		value Transcribe
		want  *registryv1.Transcribe
	}{
		{Transcribe{}, nil},
		{Transcribe{Provider: "a"}, &registryv1.Transcribe{Provider: "a", Model: "whisper-1", Timeout: durationpb.New(2 * time.Minute)}},
		{Transcribe{Command: []string{"a"}, Timeout: time.Second}, &registryv1.Transcribe{Command: []string{"a"}, Timeout: durationpb.New(time.Second)}},
	} {
		set := Default()
		set.Media.Transcribe = c.value
		if got := set.TurnConfig(Conversation{}, nil).GetTranscribe(); got.String() != c.want.String() {
			t.Errorf("%v: a turn has %v", c.value, got)
		}
	}
}
