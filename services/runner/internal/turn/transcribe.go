package turn

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
)

// Programs runs programs of the settings; [shell.Tool] does.
type Programs interface {
	Output(ctx context.Context, at toolset.Place, key string, argv []string, timeout time.Duration) (string, error)
}

// transcribeShare is which part of the rest of the turn's time a file may take: the model needs time, too, however many
// files there are.
const transcribeShare = 4

// transcribeFiles has the text made of what was said in the files of a message, before a model reads of them. A file whose
// text cannot be made leaves the message as it is: its line says why. The error is the one of the journal, or the cause of ctx.
func (t *turn) transcribeFiles(ctx context.Context, event int64, source, content string) error {
	c := t.begun.GetConfig().GetTranscribe()
	if c == nil || source == thread.SourceSelf || !thread.MayHaveVoice(content) {
		return nil
	}
	for _, a := range prompt.Attachments(content) {
		known := memory.TranscriptsOf(t.begun.GetTail())[event]
		if !a.Spoken() || slices.ContainsFunc(known, func(k thread.Transcript) bool { return k.SHA256 == a.SHA256() }) {
			continue
		}
		if err := t.transcribe(ctx, c, event, a); err != nil {
			return err
		}
	}
	return nil
}

// transcribe has the text of one file made, and journals it with the event that holds it. A call that was begun before a
// crash is made again: its text was not recorded.
func (t *turn) transcribe(ctx context.Context, c *registrypb.Transcribe, event int64, a prompt.Attachment) error {
	text, known := t.transcriptOf(a)
	by, program := c.GetProvider()+"/"+c.GetModel(), len(c.GetCommand()) > 0
	switch {
	case known:
		by = "an earlier message"
	case program:
		by = filepath.Base(c.GetCommand()[0])
	}
	row := t.steps.Transcript(event, a.SHA256(), a.Path(), by, known || program)
	if err := t.steps.Write(ctx, nil, row); err != nil {
		return err
	}
	begun, most := time.Now(), min(c.GetTimeout().AsDuration(), t.left()/transcribeShare)
	var why error
	switch {
	case known:
	case program:
		text, why = t.runTranscriber(ctx, c, row.GetKey(), a, most)
	default:
		text, why = t.askTranscriber(ctx, c, a, most)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fatal(why), errors.Is(why, ErrYield):
		return why
	}
	took := time.Since(begun)
	out := &registrypb.Transcript{EventId: event, Sha256: a.SHA256()}
	detail := ""
	if why == nil {
		out.Text = transcriptText(text)
		t.logf("INFO", "transcribe: %s by %s in %d ms, %d bytes of text", a.Path(), by, took.Milliseconds(), len(out.GetText()))
	} else {
		detail, out.Error = strings.TrimPrefix(why.Error(), "model: "), reasonFor(why, program)
		t.logf("WARN", "transcribe: %s by %s failed after %d ms: %s", a.Path(), by, took.Milliseconds(), step.Clip(detail, 512))
	}
	t.Meter.ObserveStep("transcript", took)
	done := step.Transcribed(row, out, detail)
	done.Duration = durationpb.New(took)
	if err := t.steps.Write(ctx, nil, done); err != nil {
		return err
	}
	// As the next claim brings it.
	subtype := thread.SubtypeTranscript
	t.begun.Tail = append(t.begun.Tail, &registrypb.Event{
		Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &subtype,
		Content: thread.Transcript{Event: event, SHA256: out.GetSha256(), Text: out.GetText(), Error: out.GetError()}.Content(),
	})
	return nil
}

// transcriptOf is the text of the same file in an earlier message, as of one that was sent again after it was dead.
func (t *turn) transcriptOf(a prompt.Attachment) (text string, known bool) {
	for _, list := range memory.TranscriptsOf(t.begun.GetTail()) {
		for _, k := range list {
			if k.SHA256 == a.SHA256() && k.Error == "" {
				return k.Text, true
			}
		}
	}
	return "", false
}

// transcriptText is a transcript as it is recorded: bounded, without control characters and marks of direction.
func transcriptText(text string) string {
	text, _ = boundary.Text(strings.TrimSpace(sandbox.Text([]byte(text))), thread.MaxTranscript)
	return text
}

// reasonFor is what a model reads of a failure: no words of a provider or a program.
func reasonFor(why error, program bool) string {
	e, ofProvider := errors.AsType[*model.Error](why)
	switch {
	case ofProvider && e.Class == model.ContextTooLong:
		return "the file is too large for the provider"
	case ofProvider:
		return e.Class.String()
	case errors.Is(why, shell.ErrOutOfTime):
		return model.Timeout.String()
	case program:
		return "the program for it failed"
	}
	return "the file cannot be read"
}

// askTranscriber asks the provider, and again as long as that may help and there is time.
func (t *turn) askTranscriber(ctx context.Context, c *registrypb.Transcribe, a prompt.Attachment, most time.Duration) (string, error) {
	if t.Media == nil {
		return "", errors.New("there are no files of messages")
	}
	data, err := t.Media.Read(ctx, t.w.AgentID, t.trusted, model.Image{SHA256: a.SHA256(), MIME: a.MIME, Name: a.Name, Size: a.Size})
	if err != nil {
		return "", err
	}
	try, err := t.Transcribers.Transcriber(c.GetProvider(), openai.Audio{Name: a.Name, MIME: a.MIME, Data: data})
	if err != nil {
		return "", err
	}
	end := time.Now().Add(most)
	for tries, away := 0, 0; ; {
		if err := t.trusted(ctx); err != nil {
			return "", err
		}
		call, cancel := context.WithDeadline(ctx, end)
		resp, o := try(call, model.Request{Model: c.GetModel(), Try: tries + away + 1, Away: away}, nil)
		cancel()
		switch {
		case o.Err == nil:
			return resp.Text, nil
		case o.Counts:
			tries, away = tries+1, 0
		case !o.Held:
			away++
		}
		if !o.Again || tries >= maxTries(t.begun.GetConfig()) || o.Wait >= time.Until(end) {
			return "", o.Err
		}
		if !o.Held {
			t.Meter.AddRetry(o.Err.Class.String())
		}
		if err := t.w.Slot.Pause(ctx, o.Wait, o.Back); err != nil {
			return "", err
		}
	}
}

// runTranscriber runs the program of the settings, on the file in the working directory.
func (t *turn) runTranscriber(ctx context.Context, c *registrypb.Transcribe, key string, a prompt.Attachment, most time.Duration) (string, error) {
	if err := t.placeFile(ctx, a); err != nil {
		return "", err
	}
	if err := t.trusted(ctx); err != nil {
		return "", err
	}
	return t.Programs.Output(ctx, t.place(), t.w.Key+":"+key, fileIn(c.GetCommand(), filepath.Join(toolset.Seen(t.begun.GetConfig()), a.Path())), most)
}

// fileIn is a command with the path of a file in the place of {file}, or behind its words.
func fileIn(command []string, path string) []string {
	const mark = "{file}"
	out := make([]string, len(command), len(command)+1)
	for i, word := range command {
		out[i] = strings.ReplaceAll(word, mark, path)
	}
	if !slices.ContainsFunc(command, func(word string) bool { return strings.Contains(word, mark) }) {
		out = append(out, path)
	}
	return out
}
