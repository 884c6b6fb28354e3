package openai_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
)

// S3-103: the file is sent as it is, under a name that says its format and nothing else of the sender's, and the answer
// is the text.
func TestTranscriber(t *testing.T) {
	for name, c := range map[string]struct {
		audio openai.Audio
		want  string
	}{
		"voice of telegram": {openai.Audio{Name: "voice.ogg", MIME: "audio/ogg"}, "audio.ogg"},
		"clip of slack":     {openai.Audio{Name: "audio_message.m4a", MIME: "audio/mp4"}, "audio.m4a"},
		"by its name":       {openai.Audio{Name: "../Ädä \"x\".MP3", MIME: "application/octet-stream"}, "audio.mp3"},
	} {
		t.Run(name, func(t *testing.T) {
			server := modeltest.NewTranscriptions(t, modeltest.Key, "whisper-1", modeltest.Say("Call me ", "back.\xff"))
			c.audio.Data = []byte("OggS\r\n--boundary\x00")
			tr := newDriver(t, openai.Config{BaseURL: server.URL(), APIKey: modeltest.Key}).Transcriber(c.audio)
			got, err := tr.Generate(t.Context(), model.Request{Model: "whisper-1"}, nil)
			if err != nil || got.Text != "Call me back.\uFFFD" || got.Model != "whisper-1" || tr.Name() != "test (transcripts)" {
				t.Errorf("%+v, %v", got, err)
			}
			files := server.Files()
			if len(files) != 1 || files[0].Name != c.want || !slices.Equal(files[0].Data, c.audio.Data) {
				t.Errorf("the endpoint got %q", files)
			}
		})
	}
}

// S0-86, S0-87: each failure has its class, which says whether another try may help, and shows no key.
func TestTranscriberFails(t *testing.T) {
	audio := openai.Audio{Name: "a.ogg", MIME: "audio/ogg", Data: []byte("OggS")}
	for name, c := range map[string]struct {
		step   modeltest.Step
		key    string
		model  string
		audio  openai.Audio
		want   model.Class
		status int
	}{
		"another key":       {key: "another", want: model.Auth, status: 401},
		"another model":     {model: "whisper-9", want: model.Config, status: 404},
		"no file":           {audio: openai.Audio{Name: "a.ogg", MIME: "audio/ogg"}, want: model.Config, status: 400},
		"an unknown format": {audio: openai.Audio{Name: "a.t x", MIME: "text/plain", Data: []byte("x")}, want: model.Config, status: 400},
		"too large":         {step: modeltest.Fail(413, "Maximum content size limit (26214400) exceeded"), want: model.ContextTooLong, status: 413},
		"busy":              {step: modeltest.Fail(429, "slow down"), want: model.RateLimited, status: 429},
		"no credit":         {step: modeltest.Step{Status: 429, Error: &modeltest.APIError{Message: "no", Code: "insufficient_quota"}}, want: model.Auth, status: 429},
		"broken":            {step: modeltest.Fail(500, modeltest.Key), want: model.Unavailable, status: 500},
		"hangs up":          {step: modeltest.Step{HangUp: true}, want: model.Unavailable},
		"redirects":         {step: modeltest.Step{Status: 307, Body: "{}"}, want: model.Config, status: 307},
		"no JSON":           {step: modeltest.Step{Body: "Call me back."}, want: model.BadResponse},
		"no text":           {step: modeltest.Step{Body: `{"language":"en"}`}, want: model.BadResponse},
		"another text":      {step: modeltest.Step{Body: `{"text":["a"]}`}, want: model.BadResponse},
		"endless":           {step: modeltest.Step{Body: `{"text":"` + strings.Repeat("a", 2<<20) + `"}`}, want: model.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			server := modeltest.NewTranscriptions(t, modeltest.Key, "whisper-1", c.step)
			if c.audio.Name == "" {
				c.audio = audio
			}
			d := newDriver(t, openai.Config{BaseURL: server.URL(), APIKey: cmp.Or(c.key, modeltest.Key)})
			got, err := d.Transcriber(c.audio).Generate(t.Context(), model.Request{Model: cmp.Or(c.model, "whisper-1")}, nil)
			e, ok := errors.AsType[*model.Error](err)
			if !ok || e.Class != c.want || e.Status != c.status || got.Text != "" {
				t.Fatalf("%+v, %v", got, err)
			}
			if strings.Contains(err.Error(), modeltest.Key) || !strings.Contains(err.Error(), "test: ") {
				t.Errorf("the error is %q", err)
			}
			if n := server.Requests(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A call ends with its deadline, which is no fault of the provider, and so does one that is given up.
func TestTranscriberEnds(t *testing.T) {
	left, gate := make(chan struct{}), make(chan struct{})
	server := modeltest.NewTranscriptions(t, modeltest.Key, "m", modeltest.Step{Gate: gate, Left: left})
	d, err := openai.New(openai.Config{Name: "test", BaseURL: server.URL(), APIKey: modeltest.Key, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tr := d.Transcriber(openai.Audio{Name: "a.ogg", Data: []byte("x")})
	_, o := retry.NewPool(retry.Waits{}).Caller(tr).Try(ctx, model.Request{Model: "m", Try: 1}, nil)
	if o.Err == nil || o.Err.Class != model.Timeout || o.Retry {
		t.Errorf("%+v", o)
	}
	<-left
}
