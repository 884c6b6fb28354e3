package turn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// speech has the data of every file, and asks a provider that is a function.
type speech struct {
	try  modelcall.TryFunc
	took []time.Duration // of each call
}

func (*speech) Write(context.Context, toolset.Place, model.Image, []byte) error { return nil }

func (*speech) Read(context.Context, string, func(context.Context) error, model.Image) ([]byte, error) {
	return []byte("OggS"), nil
}

func (s *speech) Transcriber(string, openai.Audio) (modelcall.TryFunc, error) {
	return func(ctx context.Context, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
		begun := time.Now()
		defer func() { s.took = append(s.took, time.Since(begun)) }()
		return s.try(ctx, req, emit)
	}, nil
}

// voices is a bench with a message of n voice files.
func voices(t *testing.T, n int, try modelcall.TryFunc) *bench {
	b := newBench(t, "")
	var files []string
	for i := range n {
		files = append(files, fmt.Sprintf(`{"type":"voice","name":"v.ogg","size":4,"media":"sha256:%064x"}`, i+1))
	}
	b.journal.content = `{"text":"listen","attachments":[` + strings.Join(files, ",") + `]}`
	b.journal.config.Transcribe = &pb.Transcribe{Provider: "ears", Model: "whisper-1", Timeout: durationpb.New(2 * time.Minute)}
	b.speech = &speech{try: try}
	b.llm.reply = func(_ context.Context, _, _ int, _ model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
		return say("fine")
	}
	return b
}

// S3-103: however many files there are, and however long their provider is silent, time is left for the model.
func TestTranscriptsLeaveTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := voices(t, 10, func(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
			<-ctx.Done()
			return fails(model.Timeout, 0)
		})
		b.journal.config.Timeout = durationpb.New(10 * time.Minute)
		begun := time.Now()
		r, err := b.run(t.Context())
		if err != nil || r.Fate != pb.Fate_FATE_REPLIED || len(b.speech.took) != 10 {
			t.Fatalf("%v, %v, %d calls", r, err, len(b.speech.took))
		}
		if first, third, all := b.speech.took[0], b.speech.took[2], time.Since(begun); first != 2*time.Minute || third != 90*time.Second || all > 570*time.Second {
			t.Errorf("the first file took %s, the third %s, and all %s", first, third, all)
		}
		if text := b.llm.last.Messages[0].Text; strings.Count(text, "; it could not be transcribed: out of time]") != 10 {
			t.Errorf("the model reads %q", text)
		}
	})
}

// S0-86: a provider that is away is asked again after the wait that package retry says, as its policy counts tries; one whose
// wait is longer than the time of the file is not waited for.
func TestTranscriberIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []string
		b := voices(t, 2, func(_ context.Context, req model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
			tries = append(tries, fmt.Sprint(req.Model, " ", req.Try, " ", req.Away))
			switch len(tries) {
			case 1:
				return fails(model.Unavailable, 30*time.Second)
			case 2:
				r, try := fails(model.Unavailable, 30*time.Second)
				try.Held = true
				return r, try
			case 3:
				return fails(model.BadResponse, time.Second)
			case 4:
				return say("Call me back.")
			}
			return fails(model.RateLimited, 3*time.Minute)
		})
		begun := time.Now()
		r, err := b.run(t.Context())
		if took := time.Since(begun); err != nil || r.Fate != pb.Fate_FATE_REPLIED || took != 61*time.Second {
			t.Errorf("%v, %v after %s", r, err, took)
		}
		if got, want := strings.Join(tries, ", "), "whisper-1 1 0, whisper-1 2 1, whisper-1 2 1, whisper-1 2 0, whisper-1 1 0"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		if text := b.llm.last.Messages[0].Text; !strings.Contains(text, "> Call me back.\n") || !strings.Contains(text, "transcribed: rate limited]") {
			t.Errorf("the model reads %q", text)
		}
	})
}

// A turn that is given back while it waits for the provider leaves its step begun, and so does one that loses its lease in a
// call. The next holder makes the call under the same step.
func TestTranscriptsAreLeftBegun(t *testing.T) {
	for name, want := range map[string]error{"yield": turn.ErrYield, "lost": turn.ErrLost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, lost := 0, false
				b := voices(t, 1, func(context.Context, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
					if calls++; calls == 1 {
						lost = name == "lost"
						return fails(model.Unavailable, time.Second)
					}
					return say("Call me back.")
				})
				b.place.yield = name == "yield"
				b.check = func() error {
					if lost {
						return errors.New("expired")
					}
					return nil
				}
				if _, err := b.run(t.Context()); !errors.Is(err, want) {
					t.Fatalf("ended with %v", err)
				}
				if s := b.journal.step("transcribe:1"); s.GetState() != pb.StepState_STEP_STATE_INTENT || b.llm.calls != 0 {
					t.Errorf("the journal has %v, and the model was asked %d times", s, b.llm.calls)
				}
				b.place.yield, lost = false, false
				if r, err := b.run(t.Context()); err != nil || r.Fate != pb.Fate_FATE_REPLIED {
					t.Fatalf("%v, %v", r, err)
				}
				if s := b.journal.step("transcribe:1"); s.GetState() != pb.StepState_STEP_STATE_DONE || b.journal.step("transcribe:2") != nil || calls != 2 {
					t.Errorf("after %d calls the journal has %v", calls, b.journal.steps)
				}
			})
		})
	}
}
