package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// loopback is a model of the test: it does what the last message of the user
// says, with pauses that the test ends.
type loopback struct {
	*httptest.Server
	goOn  chan struct{} // lets a reply that was begun go on
	ended chan struct{} // told when a caller gave up
}

func newLoopback(t *testing.T) *loopback {
	p := &loopback{goOn: make(chan struct{}), ended: make(chan struct{}, 8)}
	p.Server = httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(p.Server.CloseClientConnections)
	t.Cleanup(p.Server.Close)
	return p
}

// answers are those to a message of one word or two.
var answers = map[string]string{
	"a table": "| Name | What it does | Cost |\n|------|:------------:|-----:|\n| 表格 | Chinese text and an explanation that has to be wrapped in eighty columns | 12 |\n" +
		"| 👩 joined | R&amp;D `a\\|b` **bold** | 3 |\n\nThat is `2*3*4 = 24`, or 2*3*4 = *x*.",
	"a list":  "1. one\n   - two\n     - three\n2. four:\n   ```sh\n   ls -l\n   ```\n> quoted words",
	"chinese": strings.Repeat("漢字は空白なしで続く文章ですから、", 4) + "どこでも折り返す。",
	"emoji":   "👩\u200d👩\u200d👧 a family, 👍🏽 a skin, 🇩🇪 a flag, 한국어 텍스트.\n\n| 絵文字 | n |\n|---|--:|\n| 👩\u200d👩\u200d👧 | 1 |\n| \u2764\ufe0f ok | 22 |\n| 漢字 | 333 |",
	"all of it": "## Code\n```go\nfunc main() {\n\tfmt.Println(\"a line of code that is certainly wider than the eighty columns of a small terminal\", 42)\n}\n```\n" +
		"See [the page](https://example.com/a/path/that/is/longer/than/the/eighty/columns/of/a/small/terminal/index.html?query=1) for `more`.\n\n" +
		"| First | Second | Third | Fourth | Fifth | Sixth |\n|---|---|---|---|---|--:|\n" +
		"| words that need some columns | more words that need columns | 12345678901234567890 | https://example.com/path | short | 1 |\n| a | b | c | d | e | 22 |\n\n" +
		"1. one\n   - [x] an item of a list that is long enough to be wrapped at the end of the line in a small terminal\n\n> A quote that is long enough to be wrapped at the end of the line in a terminal of eighty columns.\n\nThe last line.",
	"the long": "# A long answer\n" + strings.Repeat("Some **bold** words in a paragraph that is wider than eighty columns, so that it is wrapped at a blank.\n\n", 40) + "## The end of it",
}

// env is what makes agentd use it.
func (p *loopback) env() []string {
	return []string{"OPENAI_BASE_URL=" + p.URL + "/v1", "OPENAI_API_KEY=sk-test", "OPENAI_MODEL=scripted"}
}

func (p *loopback) answer(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []struct {
			Role    string
			Content string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	last := in.Messages[len(in.Messages)-1]
	w.Header().Set("Content-Type", "text/event-stream")
	delta := func(v map[string]any) {
		chunk := map[string]any{
			"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "delta": v}},
		}
		b, _ := json.Marshal(chunk)
		fmt.Fprintf(w, "data: %s\n\n", b)
		w.(http.Flusher).Flush()
	}
	reason := "stop"
	words := strings.TrimSpace(last.Content[strings.LastIndex(last.Content, "\n")+1:])
	switch text := last.Content; {
	case last.Role == "tool":
		delta(map[string]any{"content": "The tool has said it."})
	case answers[words] != "":
		for piece := range strings.SplitAfterSeq(answers[words], " ") {
			delta(map[string]any{"content": piece})
		}
	case strings.Contains(text, "count"):
		delta(map[string]any{"content": "one\ntwo\nthr"})
		select {
		case <-p.goOn:
		case <-r.Context().Done():
			return
		}
		delta(map[string]any{"content": "ee\nfour\nfive"})
	case words == "grow":
		delta(map[string]any{"content": strings.Repeat("begun ", 60)})
		select {
		case <-p.goOn:
		case <-r.Context().Done():
			return
		}
		delta(map[string]any{"content": strings.Repeat("ended ", 60) + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAll."})
	case strings.Contains(text, "stream"):
		delta(map[string]any{"content": "## Title\nsome **bold** beginning"})
		select {
		case <-p.goOn:
		case <-r.Context().Done():
			return
		}
		delta(map[string]any{"content": ", and\n- the end\n"})
	case strings.Contains(text, "tool"):
		delta(map[string]any{"reasoning_content": "a tool is needed here"})
		reason = "tool_calls"
		delta(map[string]any{"tool_calls": []any{map[string]any{
			"index": 0, "id": "call_1", "type": "function",
			"function": map[string]any{"name": "bash_exec", "arguments": `{"command":"echo from-the-tool","comment":"to see"}`},
		}}})
	case strings.Contains(text, "hang"):
		delta(map[string]any{"content": "this never ends"})
		<-r.Context().Done()
		p.ended <- struct{}{}
		return
	default:
		delta(map[string]any{"content": "heard: " + words})
	}
	fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"scripted\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", reason)
	fmt.Fprint(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"scripted\",\"choices\":[],\"usage\":{\"prompt_tokens\":21,\"completion_tokens\":7,\"total_tokens\":28}}\n\ndata: [DONE]\n\n")
}
