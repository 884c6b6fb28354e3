package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// maxTranscript bounds the answer of audio/transcriptions, in bytes.
const maxTranscript = 1 << 20

// Audio is a file with speech.
type Audio struct {
	Name, MIME string
	Data       []byte
}

// Transcriber makes the text of what is said in one file, at the endpoint of its driver. It is a [model.Driver], so that
// its calls wait and are repeated as all calls of the provider are; of a request it uses the name of the model alone.
type Transcriber struct {
	driver *Driver
	audio  Audio
}

var _ model.Driver = Transcriber{}

// Transcriber returns that of a file.
func (d *Driver) Transcriber(a Audio) Transcriber { return Transcriber{d, a} }

// Name names the provider and what it does: this endpoint may fail while its models answer, so that calls of one
// must not hold back those of the other.
func (t Transcriber) Name() string { return t.driver.Name() + " (transcripts)" }

// Generate makes one call. The text of the response is the transcript, and may be empty.
func (t Transcriber) Generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	return model.Receive(req, onDelta, func(func(model.Delta)) (model.Response, error) {
		d, begun := t.driver, time.Now()
		call := wire.Begin(ctx, d.clean, d.cfg.IdleTimeout, d.cfg.CallTimeout)
		defer call.End()
		text, err := t.text(call, req.Model)
		if err != nil {
			return model.Response{}, call.Failure(err, 0)
		}
		return model.Response{Text: text, Model: req.Model, FinishReason: model.FinishStop, Duration: time.Since(begun)}, nil
	})
}

func (t Transcriber) text(call *wire.Call, name string) (string, error) {
	d := t.driver
	body, length, contentType, err := t.form(name)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(call.Context, http.MethodPost, strings.TrimSuffix(d.cfg.BaseURL, "/")+"/audio/transcriptions", body())
	if err != nil {
		return "", err
	}
	req.ContentLength, req.GetBody = length, func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }
	req.Header.Set("Content-Type", contentType)
	d.authorize(req)
	answer, err := call.Answer(req, d.client.Do, maxTranscript)
	if err != nil {
		return "", err
	}
	var out struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(answer, &out) != nil || out.Text == nil {
		return "", d.clean.Error(model.BadResponse, 0, "the endpoint answers no transcript")
	}
	return *out.Text, nil
}

// form is the body of a request, which has the file as it is. It can be read again where a connection breaks before it.
func (t Transcriber) form(name string) (body func() io.Reader, length int64, contentType string, err error) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for _, field := range [][2]string{{"model", name}, {"response_format", "json"}} {
		if err := form.WriteField(field[0], field[1]); err != nil {
			return nil, 0, "", err
		}
	}
	if _, err := form.CreateFormFile("file", t.audio.file()); err != nil {
		return nil, 0, "", err
	}
	begin := b.Len()
	if err := form.Close(); err != nil {
		return nil, 0, "", err
	}
	all := b.Bytes()
	length = int64(len(all) + len(t.audio.Data))
	body = func() io.Reader {
		return io.MultiReader(bytes.NewReader(all[:begin]), bytes.NewReader(t.audio.Data), bytes.NewReader(all[begin:]))
	}
	return body, length, form.FormDataContentType(), nil
}

// extensions of files, by which endpoints know the format.
var extensions = map[string]string{
	"audio/ogg": ".ogg", "audio/opus": ".ogg", "audio/mpeg": ".mp3", "audio/mp3": ".mp3", "audio/mp4": ".m4a", "audio/x-m4a": ".m4a", "audio/aac": ".m4a",
	"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/wave": ".wav", "audio/webm": ".webm", "audio/flac": ".flac", "audio/x-flac": ".flac",
}

// file is the name under which the file is sent: nothing of the name that a person chose but the extension of a format
// that is not known by its type.
func (a Audio) file() string {
	ext, known := extensions[strings.ToLower(a.MIME)]
	if !known {
		ext = strings.ToLower(path.Ext(a.Name))
		if len(ext) < 2 || len(ext) > 6 || strings.Trim(ext[1:], "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			ext = ""
		}
	}
	return "audio" + ext
}
