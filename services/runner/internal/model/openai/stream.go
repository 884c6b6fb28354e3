package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// maxLine bounds a line of a stream; a longer one is [bufio.ErrTooLong].
const maxLine = 32 << 20

// chunk is the part that we read of one event of a stream. What a server adds is ignored, and
// so is a field of another type than OpenAI's.
type chunk struct {
	ID      text            `json:"id"`
	Model   text            `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *tokens         `json:"usage"`
	Error   json.RawMessage `json:"error"` // null: none
}

type choice struct {
	Index        int64 `json:"index"`
	Delta        delta `json:"delta"`
	FinishReason text  `json:"finish_reason"`
}

// delta is a piece of an answer. The thinking has no place in OpenAI's own format: DeepSeek and
// Moonshot call it reasoning_content, OpenRouter and Ollama reasoning.
type delta struct {
	Content          text    `json:"content"`
	Refusal          text    `json:"refusal"`
	ReasoningContent thought `json:"reasoning_content"`
	Reasoning        thought `json:"reasoning"`
	ToolCalls        []piece `json:"tool_calls"`
}

// piece is a part of a tool call.
type piece struct {
	Index    int64 `json:"index"`
	ID       text  `json:"id"`
	Function struct {
		Name      text `json:"name"`
		Arguments text `json:"arguments"`
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content"`
}

// tokens is what a call has used. What came from the cache is next to OpenAI's own field at
// DeepSeek and Moonshot.
type tokens struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
		Write  int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Thinking struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit int64 `json:"prompt_cache_hit_tokens"`
	Cached   int64 `json:"cached_tokens"`
}

// text is a JSON string with the bytes it has, also those that are not UTF-8: they may be a
// part of a character that the next chunk completes. Any other value is the text of its JSON,
// such as arguments that are an object and not the text of one; null is empty.
type text string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(raw []byte) error {
	switch {
	case raw[0] == '"':
		*t = text(unquote(raw))
	case string(raw) != "null":
		*t = text(raw)
	}
	return nil
}

// thought is the same of thinking, for which any other value is empty.
type thought string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *thought) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		*t = thought(unquote(raw))
	}
	return nil
}

// unquote decodes a JSON string and keeps its bytes that are not UTF-8.
func unquote(raw []byte) string {
	const private = 0x100000 // a plane for private use: such bytes are characters of it meanwhile
	inside := raw[1 : len(raw)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside)
	}
	var s string
	if utf8.Valid(raw) {
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	b := make([]byte, 0, 2*len(raw))
	for _, c := range raw {
		if c < utf8.RuneSelf {
			b = append(b, c)
		} else {
			b = utf8.AppendRune(b, private+rune(c))
		}
	}
	if json.Unmarshal(b, &s) != nil {
		return ""
	}
	b = b[:0]
	for _, r := range s {
		if r >= private+utf8.RuneSelf && r <= private+0xff {
			b = append(b, byte(r-private))
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// events reads the server-sent events of an answer. Its first buffers are used again.
type events struct {
	lines *bufio.Scanner
	data  []byte
	lent  *[2][]byte
}

var lent = sync.Pool{New: func() any { return &[2][]byte{make([]byte, 4<<10), make([]byte, 0, 4<<10)} }}

func eventsOf(body io.Reader) *events {
	e := &events{lines: bufio.NewScanner(body), lent: lent.Get().(*[2][]byte)}
	e.lines.Buffer(e.lent[0], maxLine)
	e.data = e.lent[1]
	return e
}

// close gives the buffers back; what was read of them is not used afterwards.
func (e *events) close() { lent.Put(e.lent) }

// next is the data of the next event, which is valid until the next call; io.EOF at the end. An
// event that no empty line ends is none, as the specification of server-sent events has it.
func (e *events) next() ([]byte, error) {
	e.data = e.data[:0]
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if len(e.data) > 0 {
				return e.data, nil
			}
			continue
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); string(name) == "data" {
			e.data = append(append(e.data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
	}
	if err := e.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// nextChunk is the next part of the answer; io.EOF at its end. An event that reports an error
// is that error.
func (d *Driver) nextChunk(e *events) (c chunk, err error) {
	data, err := e.next()
	if err != nil {
		return c, err
	}
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		return c, io.EOF
	}
	if !isObject(data) { // it says what it is instead
		return c, json.Unmarshal(data, &map[string]json.RawMessage{})
	}
	err = json.Unmarshal(data, &c)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = nil // what could be read was read
	}
	if err == nil && len(c.Error) > 0 && string(c.Error) != "null" {
		err = d.clean.Event(wire.ParseReport(data))
	}
	return c, err
}
