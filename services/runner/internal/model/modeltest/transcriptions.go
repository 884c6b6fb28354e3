package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Audio is a file that was sent to be transcribed.
type Audio struct {
	Model, Name string
	Data        []byte
}

// Transcriptions is the endpoint audio/transcriptions of a provider, on loopback. It answers with the steps of a script,
// each with the pieces of its Text as the transcript, and refuses as OpenAI does: another key or model, and a form without
// a file or with one whose format its name does not say. A refusal takes no step.
type Transcriptions struct {
	key, model string
	http       *httptest.Server

	mu    sync.Mutex
	steps []Step
	heard []Audio
	tries int
}

// audioFormats are the extensions of files that OpenAI takes.
var audioFormats = []string{".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm"}

// NewTranscriptions starts an endpoint that knows a key and a model. It ends with the test.
func NewTranscriptions(tb testing.TB, key, model string, steps ...Step) *Transcriptions {
	tb.Helper()
	s := &Transcriptions{key: key, model: model, steps: steps}
	s.http = httptest.NewServer(s)
	tb.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// URL is the base URL for a provider.
func (s *Transcriptions) URL() string { return s.http.URL + "/v1" }

// Files are the files of the requests that were not refused, in their order.
func (s *Transcriptions) Files() []Audio {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

// Requests is how many requests came, with those that were refused.
func (s *Transcriptions) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

// ServeHTTP answers one request.
func (s *Transcriptions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, refused := s.read(r)
	s.mu.Lock()
	s.tries++
	var step Step
	switch {
	case refused != nil:
		step = *refused
	case len(s.steps) == 0:
		step = Fail(http.StatusBadRequest, "modeltest: the script has no step for this request")
	default:
		step, s.steps, s.heard = s.steps[0], s.steps[1:], append(s.heard, file)
	}
	s.mu.Unlock()
	if step.Gate != nil {
		select {
		case <-step.Gate:
		case <-r.Context().Done():
			if step.Left != nil {
				close(step.Left)
			}
			return
		}
	}
	if step.HangUp {
		panic(http.ErrAbortHandler)
	}
	if step.RetryAfter != "" {
		w.Header().Set("Retry-After", step.RetryAfter)
	}
	if step.Status == 0 && step.Body == "" {
		// As in the API reference, of a model that is paid by the second.
		body, err := json.Marshal(map[string]any{"text": strings.Join(step.Text, ""), "usage": map[string]any{"type": "duration", "seconds": 3}})
		if err != nil {
			panic(err)
		}
		step.Body = string(body)
	}
	whole(w, step)
}

// read reads a request; refused is the answer to one that is wrong.
func (s *Transcriptions) read(r *http.Request) (file Audio, refused *Step) {
	fail := func(status int, message, code string) (Audio, *Step) {
		return Audio{}, &Step{Status: status, Error: &APIError{Message: message, Type: "invalid_request_error", Code: code}}
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/audio/transcriptions" {
		return fail(http.StatusNotFound, "Invalid URL ("+r.Method+" "+r.URL.Path+")", "")
	}
	if r.Header.Get("Authorization") != "Bearer "+s.key {
		return fail(http.StatusUnauthorized, "Incorrect API key provided", "invalid_api_key")
	}
	const most = 64 << 20
	r.Body = http.MaxBytesReader(nil, r.Body, most)
	if err := r.ParseMultipartForm(most); err != nil { //nolint:gosec // the body is bounded
		return fail(http.StatusBadRequest, "Could not parse multipart form", "")
	}
	file.Model = r.PostFormValue("model")
	if file.Model != s.model {
		return fail(http.StatusNotFound, "The model `"+file.Model+"` does not exist", "model_not_found")
	}
	if format := r.PostFormValue("response_format"); format != "json" {
		return fail(http.StatusBadRequest, "response_format '"+format+"' is not compatible with model '"+file.Model+"'", "unsupported_value")
	}
	in, header, err := r.FormFile("file")
	if err != nil {
		return fail(http.StatusBadRequest, "Missing required parameter: 'file'.", "missing_required_parameter")
	}
	defer in.Close()
	file.Name = header.Filename
	if file.Data, err = io.ReadAll(in); err != nil || len(file.Data) == 0 || !slices.Contains(audioFormats, path.Ext(file.Name)) {
		return fail(http.StatusBadRequest, "Invalid file format.", "")
	}
	return file, nil
}
