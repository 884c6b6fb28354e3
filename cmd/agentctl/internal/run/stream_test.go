package run

import (
	"bytes"
	"strings"
	"testing"

	"github.com/theclaw/agents/cmd/internal/command"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// A8: a digest is in both outputs, and its end says whether the model is asked again.
func TestStreamDigest(t *testing.T) {
	var out, errs bytes.Buffer
	s := speaker{env: command.New(strings.NewReader(""), &out, &errs, func(string) string { return "" }, "test"), narrator: narrator{out: &errs}}
	var lines bytes.Buffer
	for _, i := range []*runner.StreamRunResponse{
		{Seq: 1, Stream: runner.RunStream_RUN_STREAM_COMPACTION, Phase: "start", Text: "turns"},
		{Seq: 2, Stream: runner.RunStream_RUN_STREAM_COMPACTION, Phase: "end", Text: "turns", WillRetry: true},
	} {
		if err := s.tell(i); err != nil {
			t.Fatal(err)
		}
		b, err := line(i)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	if want := "digest: older messages are summarized before the answer\n"; errs.String() != want || out.Len() > 0 {
		t.Errorf("standard error %q, standard output %q", &errs, &out)
	}
	const want = `{"seq":1,"stream":"compaction","phase":"start","text":"turns"}` + "\n" +
		`{"seq":2,"stream":"compaction","phase":"end","text":"turns","will_retry":true}` + "\n"
	if lines.String() != want {
		t.Errorf("as JSON: %s", &lines)
	}
}

// What a runner said that lost the run is told apart from what the next one says: the
// reply goes on in a line of its own, and a line on standard error says why.
func TestStreamRestarts(t *testing.T) {
	var out, errs bytes.Buffer
	e := command.New(strings.NewReader(""), &out, &errs, func(string) string { return "" }, "test")
	s := speaker{env: e, narrator: narrator{out: &errs}}
	const (
		life    = runner.RunStream_RUN_STREAM_LIFECYCLE
		said    = runner.RunStream_RUN_STREAM_ASSISTANT
		thought = runner.RunStream_RUN_STREAM_REASONING
	)
	for _, i := range []*runner.StreamRunResponse{
		{Stream: life, Phase: "start"},
		{Stream: thought, Phase: "delta", Text: "hm"},
		{Stream: said, Phase: "delta", Text: "It is "},
		{Stream: said, Phase: "delta", Text: "rai"},
		{Stream: life, Phase: "restart"},
		{Stream: said, Phase: "delta", Text: "It is "},
		{Stream: said, Phase: "delta", Text: "sunny."},
		{Stream: life, Phase: "end"},
	} {
		if err := s.tell(i); err != nil {
			t.Fatal(err)
		}
	}
	s.endLine()
	if want := "It is rai\nIt is sunny.\n"; out.String() != want {
		t.Errorf("standard output %q, want %q", out.String(), want)
	}
	if want := "thought: hm\nrestart: ignore the text so far, it is sent again\n"; errs.String() != want {
		t.Errorf("standard error %q, want %q", errs.String(), want)
	}
}
