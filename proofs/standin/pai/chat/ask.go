package chat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// client gives up late: what is cut off is cut off by the other side.
var client = &http.Client{Timeout: 10 * time.Minute}

// tries of one round, as the real program's client makes them.
const tries = 3

type answer struct {
	text, finish string
	calls        []call
}

var bashTool = json.RawMessage(`{"type":"function","function":{"name":"bash_exec","description":"Run a bash command","parameters":{"type":"object","properties":{"command":{"type":"string"},"comment":{"type":"string"},"cwd":{"type":"string"},"timeout_seconds":{"type":"number"}},"required":["command","comment"]}}}`)

// ask makes one round; text goes out as it comes.
func (p *program) ask(v provider, key, model string, sent []message, offer bool) (answer, error) {
	body := map[string]any{
		"model": model, "messages": wire(sent), "stream": true, "stream_options": map[string]any{"include_usage": true}, "store": false,
	}
	if v.MaxTokens > 0 {
		body["max_completion_tokens"] = v.MaxTokens
	}
	if offer {
		body["tools"] = []any{bashTool}
	}
	encoded := encode(body)
	var last string
	for try := 1; try <= tries; try++ {
		req, err := http.NewRequest(http.MethodPost, strings.TrimSuffix(v.BaseURL, "/")+"/chat/completions", bytes.NewReader(encoded))
		if err != nil {
			return answer{}, p.api("Connection error.")
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			last = "Connection error."
			p.wait(try, "")
			continue
		}
		if res.StatusCode == http.StatusOK {
			defer res.Body.Close()
			return p.read(res.Body), nil
		}
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		_ = res.Body.Close()
		var e struct {
			Error struct{ Message string } `json:"error"`
		}
		last = fmt.Sprintf("%d status code (no body)", res.StatusCode)
		if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
			last = fmt.Sprintf("%d %s", res.StatusCode, e.Error.Message)
		}
		if res.StatusCode != http.StatusTooManyRequests && res.StatusCode < 500 {
			return answer{}, p.api(last)
		}
		p.wait(try, res.Header.Get("Retry-After"))
	}
	return answer{}, p.api(last)
}

func (p *program) wait(try int, after string) {
	if _, quick := p.quirks["quick"]; quick || try == tries {
		return
	}
	d := time.Duration(try) * 700 * time.Millisecond
	if s, err := strconv.ParseFloat(after, 64); err == nil && s > 0 {
		d = time.Duration(s * float64(time.Second))
	}
	time.Sleep(d)
}

// read follows the stream to its end, whatever end that is: one that breaks off
// is taken for a whole answer.
func (p *program) read(body io.Reader) answer {
	a := answer{finish: "stop"}
	type part struct{ id, name, arguments string }
	var parts []part
	in := bufio.NewScanner(body)
	in.Buffer(nil, 8<<20)
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string `json:"content"`
					ToolCalls []struct {
						Index    int    `json:"index"`
						ID       string `json:"id"`
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				} `json:"delta"`
				FinishReason string `json:"finish_reason"`
			} `json:"choices"`
		}
		if json.Unmarshal([]byte(data), &chunk) != nil {
			continue
		}
		for _, c := range chunk.Choices {
			a.text += c.Delta.Content
			if p.o.stream {
				_, _ = io.WriteString(p.stdout, c.Delta.Content)
			}
			if path := p.quirks["die"]; path != "" && c.Delta.Content != "" && os.Remove(path) == nil {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			for _, t := range c.Delta.ToolCalls {
				for len(parts) <= t.Index {
					parts = append(parts, part{})
				}
				if t.ID != "" {
					parts[t.Index].id = t.ID
				}
				parts[t.Index].name += t.Function.Name
				parts[t.Index].arguments += t.Function.Arguments
			}
			switch c.FinishReason {
			case "tool_calls":
				a.finish = "toolUse"
			case "length":
				a.finish = "length"
			}
		}
	}
	for _, t := range parts {
		if !json.Valid([]byte(t.arguments)) {
			t.arguments = "{}"
		}
		a.calls = append(a.calls, call{t.id, t.name, json.RawMessage(t.arguments)})
	}
	if !p.o.stream {
		_, _ = io.WriteString(p.stdout, a.text)
	}
	return a
}

// wire is the conversation in the provider's words.
func wire(sent []message) []any {
	var out []any
	for _, m := range sent {
		w := map[string]any{"role": m.Role, "content": m.Content}
		if m.ToolCallID != "" {
			w["tool_call_id"] = m.ToolCallID
		}
		var calls []any
		for _, c := range m.ToolCalls {
			calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}})
		}
		if calls != nil {
			w["tool_calls"] = calls
		}
		out = append(out, w)
	}
	return out
}
