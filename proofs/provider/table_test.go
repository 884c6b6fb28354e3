//go:build proof

package provider_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
)

// The fates of a message.
const (
	replied = "replied"
	dead    = "dead"
	waits   = "waits"
)

// row is one kind of answer and what becomes of the message.
type row struct {
	name string
	// want is the fate, and cause a part of the reply or of the error.
	want, cause string
	// told is a part of the results of tools that the model is sent.
	told string
	// calls is how many calls are paid.
	calls int
	// outage: the provider is away, so the message waits and spends no try.
	outage bool
	// stubborn: the provider answers so, whatever the results of tools are.
	stubborn bool
	// timeout is the turn's; empty: as usual.
	timeout string
	// messages: the provider speaks the Messages API, and healthy is its good answer.
	messages bool
	healthy  string
	serve    func(x *exchange)
}

const (
	mega = 1 << 20
	// slow is for answers that never end: the time of the turn ends them.
	slow = "4s"
)

func table() []row {
	var rows []row
	add := func(list ...row) { rows = append(rows, list...) }
	text := func(name, reply string, stream ...string) row {
		return row{name: name, want: replied, cause: reply, calls: 1, serve: func(x *exchange) { x.stream(stream...) }}
	}
	tool := func(name, told string, stream ...string) row {
		return row{name: name, want: replied, cause: "done", told: told, calls: 2, serve: func(x *exchange) { x.stream(stream...) }}
	}
	fails := func(name, cause string, n int, serve func(x *exchange)) row {
		return row{name: name, want: dead, cause: cause, calls: n, serve: serve}
	}
	stream := func(s ...string) func(x *exchange) { return func(x *exchange) { x.stream(s...) } }
	absent := func(name, cause string, serve func(x *exchange)) row {
		return row{name: name, cause: cause, outage: true, serve: serve}
	}
	status := func(code int, contentType, body string) func(x *exchange) {
		return func(x *exchange) { x.status(code, contentType, body) }
	}

	// Texts.
	add(
		text("invalid byte in text", "a\uFFFDb", say("a\xffb")),
		text("character in two chunks", "5 \u20ac", delta("\"content\":\"5 \xe2\""), delta("\"content\":\"\x82\xac\""), end("stop")),
		text("invalid byte in thinking", "x", delta("\"reasoning_content\":\"a\xff\""), say("x")),
		text("invalid byte in the id", "x", event("{\"id\":\"\xff\",\"model\":\"\xfe\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}"), end("stop")),
		text("half a surrogate", "a\uFFFDb", say(`a\ud83db`)),
		text("NUL in text", "ab", delta(`"content":"a"`), say(`b\u0000`)),
		row{name: "100 MB of text", want: replied, cause: "larger than a message can be", calls: 1, serve: func(x *exchange) {
			x.many(100, delta(`"content":"`+strings.Repeat("x", mega)+`"`))
			x.send(end("stop"))
		}},
	)
	// Calls: arguments, names, ids.
	add(
		tool("invalid byte in arguments", "bytes that are not UTF-8", calls(call("c1", "{\"command\":\"echo a\xffb\"}"))),
		tool("invalid byte in a name", "there is no tool", calls(callOf("c1", "bash\xff", `{"command":"true"}`))),
		tool("invalid byte in an id", "ran", calls(call("c\xff1", `{"command":"echo ran"}`))),
		tool("arguments end too early", "not valid JSON", calls(call("c1", `{"command":"ec`))),
		tool("arguments are an array", "not a JSON object", calls(call("c1", `["ls"]`))),
		tool("arguments are a string", "not a JSON object", calls(call("c1", `"ls"`))),
		tool("arguments are a number", "not a JSON object", calls(call("c1", `7`))),
		tool("arguments are words", "not a JSON object", calls(call("c1", `ls -l`))),
		tool("arguments are two objects", "not valid JSON", calls(call("c1", `{"command":"ls"}{}`))),
		tool("arguments are null", "command is missing", calls(call("c1", `null`))),
		tool("arguments are empty", "command is missing", calls(call("c1", ``))),
		tool("argument of the wrong type", "command must be of type string", calls(call("c1", `{"command":["ls"]}`))),
		tool("arguments of 300 KB", "larger than", calls(call("c1", `{"command":"`+strings.Repeat("x", 300<<10)+`"}`))),
		row{name: "arguments of 100 MB", want: replied, cause: "done", told: "larger than", calls: 2, serve: func(x *exchange) {
			x.stream(delta(`"tool_calls":[{"index":0,` + call("c1", `{"command":"`) + `}]`))
			x.many(100, delta(`"tool_calls":[{"index":0,"function":{"arguments":"`+strings.Repeat("x", mega)+`"}}]`))
		}},
		tool("arguments of another shape", `"exitCode":0`, calls(`"id":"c1","type":"function","function":{"name":"bash_exec","arguments":{"command":"ls"}}`)),
		tool("unknown tool", "is not available here", calls(callOf("c1", "fly", `{}`))),
		tool("call without a name", "names no tool", calls(`"id":"c1","type":"function","function":{"arguments":"{}"}`)),
		tool("name with blanks", "there is no tool", calls(callOf("c1", "run a command", `{}`))),
		tool("name of 100 KB", "there is no tool", calls(callOf("c1", strings.Repeat("n", 100<<10), `{}`))),
		tool("call without an id", "ran", calls(`"type":"function","function":{"name":"bash_exec","arguments":"{\"command\":\"echo ran\"}"}`)),
		tool("two calls with one id", "second", calls(call("c1", `{"command":"echo first"}`), call("c1", `{"command":"echo second"}`))),
		tool("id of 1 MB", "ran", calls(call(strings.Repeat("i", mega), `{"command":"echo ran"}`))),
		tool("good call next to a bad one", "ran", calls(call("c1", `{"comm`), call("c2", `{"command":"echo ran"}`))),
		tool("output limit in a call", "not valid JSON", delta(`"tool_calls":[{"index":0,`+call("c1", `{"command":"ec`)+`}]`)+end("length")),
	)
	never := fails("calls are always bad", "cannot be understood", 5, func(x *exchange) { x.stream(calls(call(fmt.Sprint("c", x.n), `{`))) })
	never.stubborn = true
	add(never)
	// Usage.
	for name, usage := range map[string]string{
		"usage is missing": "", "usage is negative": `{"prompt_tokens":-5,"completion_tokens":-1}`, "usage is huge": `{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807}`,
		"usage is a text": `"many"`, "usage of the wrong type": `{"prompt_tokens":"many","completion_tokens":[1]}`, "usage is a fraction": `{"prompt_tokens":1e300,"completion_tokens":0.5}`,
	} {
		if usage != "" {
			usage = event(`{"id":"x","choices":[],"usage":` + usage + `}`)
		}
		add(text(name, "x", delta(`"content":"x"`), event(`{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), usage, event("[DONE]")))
	}
	// Streams that end too early, once: after each of the chunks of an answer.
	whole := []string{delta(`"role":"assistant","content":""`), delta(`"content":"who"`), delta(`"content":"le"`)}
	for n := range len(whole) + 1 {
		add(row{name: fmt.Sprintf("connection lost after %d chunks", n), want: replied, cause: "whole", calls: 2, serve: func(x *exchange) {
			if x.n == 1 {
				x.stream(append(append([]string{}, whole[:n]...), ": cut\n")...)
				x.cut()
			}
			x.stream(append(append([]string{}, whole...), end("stop"))...)
		}})
	}
	add(
		fails("connection always lost", "answer broke off", 3, func(x *exchange) { x.stream(whole...); x.cut() }),
		absent("body ends before the text", "answer broke off", stream(whole[0], `data: {"choices":[{"del`)),
		absent("hung up before the answer", "provider failed", func(x *exchange) { x.cut() }),
		// Shapes of the stream.
		fails("web page", "does not answer with an event stream", 3, status(200, "text/html", "<html>log in</html>")),
		fails("not streamed", "does not answer with an event stream", 3, status(200, "application/json", `{"choices":[{"message":{"content":"hi"}}]}`)),
		row{name: "no type", want: replied, cause: "fine text", calls: 1, serve: status(200, "text/plain", say("fine text"))},
		absent("nothing", "answer broke off", stream()),
		fails("no text", "the model answered nothing", 3, stream(end("stop"))),
		fails("no choices", "no choices", 3, stream(event(`{"id":"x","choices":[]}`), event("[DONE]"))),
		fails("not JSON", "answer not understood", 3, stream(event("{{{"))),
		fails("no blank lines", "answer not understood", 3, stream(strings.ReplaceAll(say("x"), "\n\n", "\n")+"\n")),
		fails("NUL between events", "answer not understood", 3, stream(delta(`"content":"x"`), "data: \x00\n\n", end("stop"))),
		text("byte order mark", "whole", append([]string{"\uFEFF"}, append(whole, end("stop"))...)...),
		text("CRLF", "x", strings.ReplaceAll(say("x"), "\n", "\r\n")),
		text("comments between", "x", ": ping\n\n", delta(`"content":"x"`), ": ping\n\n", end("stop")),
		text("two answers in one", "first", delta(`"content":"first"`), event(`{"id":"x1","choices":[{"index":1,"delta":{"content":"second"}}]}`), end("stop")),
		text("another answer behind the end", "first", say("first"), say("second")),
		text("unknown finish reason", "x", delta(`"content":"x"`), end("tired")),
		text("output limit", "incomplete: the model reached its output limit", delta(`"content":"half an ans"`), end("length")),
		fails("output limit before the text", "output limit before the first word", 1, stream(delta(`"reasoning_content":"hm"`), end("length"))),
		fails("content filter", "content filter", 1, stream(delta(`"content":"I th"`), end("content_filter"))),
		fails("calls announced and missing", "announces tool calls", 3, stream(end("tool_calls"))),
		// Without end.
		fails("100 MB in one line", "larger than any answer", 1, func(x *exchange) {
			x.stream(`data: {"choices":[{"delta":{"content":"`)
			x.many(100, strings.Repeat("x", mega))
		}),
		fails("comments without end", "larger than any answer", 1, func(x *exchange) { x.stream(""); x.many(1<<20, ": "+strings.Repeat("x", 64<<10)+"\n") }),
		fails("spaces without end", "larger than any answer", 1, func(x *exchange) { x.stream("data: "); x.many(1<<20, strings.Repeat(" ", 64<<10)) }),
		fails("empty chunks without end", "larger than any answer", 1, func(x *exchange) { x.stream(""); x.many(1<<20, strings.Repeat(delta(``), 500)) }),
		fails("gzip bomb", "larger than any answer", 1, func(x *exchange) {
			x.Header().Set("Content-Encoding", "gzip")
			x.stream(bomb())
		}),
		row{name: "slow comments without end", want: dead, cause: "took longer than", calls: 1, timeout: slow, serve: func(x *exchange) { x.stream(": hm\n\n"); x.gone() }},
		row{name: "headers never come", want: dead, cause: "took longer than", calls: 1, timeout: slow, serve: func(x *exchange) { x.gone() }},
	)
	// Redirects, which are never followed.
	for _, code := range []int{301, 302, 303, 307, 308} {
		add(fails(fmt.Sprint("redirect ", code), "put its final address into base_url", 1, func(x *exchange) {
			x.Header().Set("Location", "http://"+x.r.Host+"/elsewhere?key=secretword")
			x.status(code, "text/plain", "elsewhere")
		}))
	}
	// Errors.
	const html, shape = "<html>\xff no</html>", `{"error":[{"reason":7}]}`
	for _, e := range []struct {
		code         int
		cause        string
		htm, js, non bool
	}{
		{400, "request refused (400)", true, true, true},
		{401, "key refused (401)", true, true, true},
		{402, "key refused (402)", false, true, true},
		{403, "key refused (403)", true, false, true},
		{404, "request refused (404)", true, true, true},
		{413, "prompt too long (413)", true, false, true},
		{418, "request refused (418)", true, false, true},
	} {
		for _, body := range []struct {
			kind, contentType, text string
			on                      bool
		}{{"HTML", "text/html", html, e.htm}, {"JSON", "application/json", shape, e.js}, {"nothing", "", "", e.non}} {
			if body.on {
				add(fails(fmt.Sprintf("%d with %s", e.code, body.kind), e.cause, 1, status(e.code, body.contentType, body.text)))
			}
		}
	}
	for _, code := range []int{429, 500, 503, 529} {
		cause := fmt.Sprintf("provider failed (%d)", code)
		if code == 429 {
			cause = "rate limited (429)"
		}
		add(absent(fmt.Sprint(code, " with HTML"), cause, status(code, "text/html", html)), absent(fmt.Sprint(code, " with nothing"), cause, status(code, "", "")))
	}
	add(
		absent("503 with JSON of another shape", "provider failed (503)", status(503, "application/json", shape)),
		fails("401 with a body without end", "key refused (401)", 1, func(x *exchange) {
			x.WriteHeader(http.StatusUnauthorized)
			x.many(1<<20, strings.Repeat("x", 64<<10))
		}),
		fails("403 with a body that does not come", "key refused (403)", 1, func(x *exchange) {
			x.WriteHeader(http.StatusForbidden)
			x.send("no")
			x.gone()
		}),
		fails("error event", "key refused (401)", 1, stream(delta(`"content":"a"`), event(`{"error":{"message":"who are you","code":401}}`))),
		fails("error with status 200", "key refused (401)", 1, status(200, "application/json", `{"error":{"message":"who are you","code":401}}`)),
	)
	return append(rows, messageRows()...)
}

// bomb is a body of a few hundred kilobytes that is 200 MB when it is decompressed.
func bomb() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	blanks := bytes.Repeat([]byte{' '}, mega)
	for range 200 {
		_, _ = z.Write(blanks) // into memory
	}
	_ = z.Close()
	return b.String()
}
