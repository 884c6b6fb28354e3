package drivertest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// refusals are answers that are no stream.
func (s suite) refusals(t *testing.T) {
	withCode := func(status int, code any, message string) modeltest.Step {
		return modeltest.Step{Status: status, Error: &modeltest.APIError{Message: message, Code: code}}
	}
	with := func(step modeltest.Step, retryAfter string) modeltest.Step { step.RetryAfter = retryAfter; return step }
	tests := []struct {
		name  string
		step  modeltest.Step
		class model.Class
		after time.Duration
	}{
		{"429", modeltest.Fail(429, "slow down"), model.RateLimited, 0},
		{"429 with seconds", with(modeltest.Fail(429, "slow down"), "7"), model.RateLimited, 7 * time.Second},
		{"429 with a date gone by", with(modeltest.Fail(429, "slow down"), "Mon, 02 Jan 2006 15:04:05 GMT"), model.RateLimited, 0},
		{"429 with nonsense", with(modeltest.Fail(429, "slow down"), "soon"), model.RateLimited, 0},
		{"429 with milliseconds", modeltest.Step{Status: 429, Header: map[string]string{"Retry-After-Ms": "1500"}, Error: &modeltest.APIError{Message: "slow"}}, model.RateLimited, 1500 * time.Millisecond},
		{"429 without credit", withCode(429, "insufficient_quota", "You exceeded your current quota"), model.Auth, 0},
		{"402", modeltest.Fail(402, "Insufficient Balance"), model.Auth, 0},
		{"401", modeltest.Fail(401, "Incorrect API key provided: "+modeltest.Key), model.Auth, 0},
		{"403", modeltest.Fail(403, "no access"), model.Auth, 0},
		{"400 context by code", withCode(400, "context_length_exceeded", "too much"), model.ContextTooLong, 0},
		{"400 context by message", modeltest.Fail(400, "This model's maximum context length is 8192 tokens."), model.ContextTooLong, 0},
		{"413", modeltest.Fail(413, ""), model.ContextTooLong, 0},
		{"400 content policy", withCode(400, "content_policy_violation", "no"), model.Policy, 0},
		{"400", modeltest.Fail(400, "unknown parameter"), model.Config, 0},
		{"404 model", withCode(404, "model_not_found", "no such model"), model.Config, 0},
		{"408", modeltest.Fail(408, "slow"), model.Unavailable, 0},
		{"529", modeltest.Fail(529, "Overloaded"), model.Unavailable, 0},
		{"400 without credit", modeltest.Fail(400, "Your credit balance is too low to access the API."), model.Auth, 0},
		{"400 prompt too long", modeltest.Fail(400, "prompt is too long: 250000 tokens > 200000 maximum"), model.ContextTooLong, 0},
		{"500", modeltest.Fail(500, "oops"), model.Unavailable, 0},
		{"503 with seconds", with(modeltest.Fail(503, "overloaded"), "3"), model.Unavailable, 3 * time.Second},
		{"502 in HTML", modeltest.Step{Status: 502, Header: map[string]string{"Content-Type": "text/html"}, Body: "<h1>Bad Gateway</h1>"}, model.Unavailable, 0},
		{"401 in plain text", modeltest.Step{Status: 401, Body: "who are you"}, model.Auth, 0},
		{"429 in an array", modeltest.Step{Status: 429, Body: `[{"error":{"code":429,"message":"slow"}}]`}, model.RateLimited, 0},
		{"500 without a body", modeltest.Step{Status: 500}, model.Unavailable, 0},
		{"redirect", modeltest.Step{Status: 302, Body: "elsewhere"}, model.Config, 0},
		// F19: followed, the request would come a second time.
		{"301 with a place", redirect(301), model.Config, 0},
		{"302 with a place", redirect(302), model.Config, 0},
		{"307 with a place", redirect(307), model.Config, 0},
		{"308 with a place", redirect(308), model.Config, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response, failure, streamed := s.call(t, tt.step, request("hi"))
			if failure == nil {
				t.Fatalf("taken as an answer: %+v", response)
			}
			if tt.step.Header["Location"] != "" && !strings.Contains(failure.Message, "put its final address into base_url") {
				t.Errorf("got %v", failure)
			}
			if failure.Class != tt.class || failure.RetryAfter != tt.after || failure.Status != tt.step.Status || streamed != "" {
				t.Errorf("got %v, retry after %v, streamed %q", failure, failure.RetryAfter, streamed)
			}
		})
	}
	t.Run("429 with a date", func(t *testing.T) {
		date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		_, failure, _ := s.call(t, with(modeltest.Fail(429, "slow down"), date), request("hi"))
		if failure == nil || failure.RetryAfter <= 0 || failure.RetryAfter > time.Hour {
			t.Errorf("got %v", failure)
		}
	})
}

func redirect(status int) modeltest.Step {
	return modeltest.Step{Status: status, Header: map[string]string{"Location": "?again=1"}, Body: "elsewhere"}
}

// brokenStreams never become an answer, however much text had arrived.
func (s suite) brokenStreams(t *testing.T) {
	tests := []struct {
		name  string
		step  modeltest.Step
		class model.Class
	}{
		{"cut in the middle", modeltest.Step{Text: []string{"half an ans"}, Cut: true}, model.CutStream},
		{"cut before the first piece", modeltest.Step{Cut: true}, model.CutStream},
		{"no finish reason", modeltest.Step{Text: []string{"half"}, Finish: modeltest.FinishNone, NoDone: true}, model.CutStream},
		{"[DONE] without a finish reason", modeltest.Step{Text: []string{"half"}, Finish: modeltest.FinishNone}, model.CutStream},
		{"ends inside a chunk", modeltest.Step{Text: []string{"half"}, Raw: []string{`data: {"choices":[{"delta":{"conte`}, Finish: modeltest.FinishNone, NoDone: true}, model.CutStream},
		{"hung up", modeltest.Step{HangUp: true}, model.Unavailable},
		{"empty body", modeltest.Step{Finish: modeltest.FinishNone, NoDone: true}, model.CutStream},
		{"garbage chunk", modeltest.Step{Text: []string{"a"}, Garbage: "{{{not json"}, model.BadResponse},
		{"garbage bytes", modeltest.Step{Text: []string{"a"}, Garbage: "\x00\xff\xfe{"}, model.BadResponse},
		{"chunk of another type", modeltest.Step{Garbage: "[1,2]", Finish: modeltest.FinishNone}, model.BadResponse},
		{"HTML", modeltest.Step{Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>log in</html>"}, model.BadResponse},
		{"not streamed", modeltest.Step{Body: `{"choices":[{"message":{"content":"hi"}}]}`}, model.BadResponse},
		{"empty choices", modeltest.Step{Text: []string{"a"}, NoChoices: true}, model.BadResponse},
		{"announced calls missing", modeltest.Step{Finish: "tool_calls"}, model.BadResponse},
		{"content filter", modeltest.Step{Text: []string{"I think"}, Finish: "content_filter"}, model.Policy},
		{"error event", modeltest.Step{Text: []string{"a"}, Error: &modeltest.APIError{Message: "upstream died"}, Finish: modeltest.FinishNone}, model.Unavailable},
		{"error event with 429", modeltest.Step{Text: []string{"a"}, Error: &modeltest.APIError{Message: "slow", Code: 429, Type: "rate_limit_error"}, Finish: modeltest.FinishNone}, model.RateLimited},
		{"error event for context", modeltest.Step{Error: &modeltest.APIError{Message: "x", Code: "context_length_exceeded"}, Finish: modeltest.FinishNone}, model.ContextTooLong},
		{"error as JSON with 200", modeltest.Step{Body: `{"error":{"message":"bad key ` + modeltest.Key + `","code":401}}`}, model.Auth},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response, failure, _ := s.call(t, tt.step, request("hi"))
			if failure == nil {
				t.Fatalf("taken as an answer: %+v", response)
			}
			if failure.Class != tt.class {
				t.Errorf("got %v, want %s", failure, tt.class)
			}
			if response.Text != "" || response.ToolCalls != nil {
				t.Errorf("a failed call returned %+v", response)
			}
		})
	}
}

// network is a provider that is not there: nothing is charged to the message.
func (s suite) network(t *testing.T) {
	for name, url := range map[string]string{
		"refused": modeltest.RefusedURL(t),
		// A label over 63 bytes is no name; the resolver says so without asking.
		"no such name": "http://" + strings.Repeat("x", 64) + "/v1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.newDriver(url, 0).Generate(t.Context(), request("hi"), nil)
			e := model.AsError(err)
			if e == nil || e.Class != model.Unreachable || !e.Recoverable() || e.CountsTry() {
				t.Errorf("got %v", err)
			}
			checkFailure(t, err, e)
		})
	}
}
