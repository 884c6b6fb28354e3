package toolset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// fixed is a tool with one answer.
type fixed struct {
	spec   toolset.Spec
	result toolset.Result
}

func (f fixed) Spec() toolset.Spec                               { return f.spec }
func (fixed) Class(toolset.Call) toolset.Class                   { return toolset.Read }
func (f fixed) Run(context.Context, toolset.Call) toolset.Result { return f.result }

// effect is a tool whose calls must not be repeated.
type effect struct{ fixed }

func (effect) Class(toolset.Call) toolset.Class { return toolset.Effect }

func named(name string) fixed {
	return fixed{spec: toolset.Spec{Name: name, Description: "x", Schema: json.RawMessage(`{"type":"object"}`)}}
}

// S0-103, S4-61: the tools of a turn are sorted, and a name outside of them runs nothing, also of
// one that exists.
func TestSet(t *testing.T) {
	run, secret := named("run"), named("secret")
	run.spec.Needs = toolset.Program
	config := &registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Number: 5, Name: "agent", Origin: "tools", Deny: []string{"secret"}}}}
	calls, j := toolsettest.Calls(t, config, run, effect{secret}, named("ask"))
	var names []string
	for _, tool := range calls.Set.Offered() {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "ask run" {
		t.Errorf("offered: %s", got)
	}
	for n, c := range []struct{ name, why string }{
		{"secret", `: denied by layer 5 agent: tools.deny [\"secret\"]`}, {"SECRET", `: denied by layer 5 agent: tools.deny [\"secret\"]`}, {"rm_rf", ""}, {"", ""},
	} {
		name := c.name
		key := "tool:1:" + string(rune('1'+n))
		text, err := toolsettest.Use(t.Context(), calls, key, model.ToolCall{Name: name, Arguments: json.RawMessage(`{}`)}, true)
		if err != nil || text != `{"error":"tool \"`+name+`\" is not available here`+c.why+`; to run a command there is run"}` {
			t.Errorf("%q: %s %v", name, text, err)
		}
		if class := j.Tool(key).GetClass(); class != registrypb.ToolClass_TOOL_CLASS_READ {
			t.Errorf("%q is of class %v", name, class)
		}
	}
}

// S3-55, S4-67: a call of a browser without its server answers which command adds one; with the server it is a name like
// others.
func TestBrowserIsAdded(t *testing.T) {
	open := named("browser__open")
	open.spec.Server = "browser"
	for _, c := range []struct {
		tools []toolset.Tool
		name  string
		want  string
	}{
		{nil, "browser", "not available: agentctl mcp add browser --preset playwright"},
		{nil, "Browser", "not available: agentctl mcp add browser --preset playwright"},
		{nil, "browser__open", "not available: agentctl mcp add browser --preset playwright"},
		{nil, "browse", `tool "browse" is not available here`},
		{[]toolset.Tool{open}, "browser", `tool "browser" is not available here`},
		{[]toolset.Tool{named("browser")}, "browser", ""},
	} {
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, c.tools...)
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: c.name, Arguments: json.RawMessage(`{}`)}, true)
		if err != nil || toolset.Failure([]byte(text)) != c.want {
			t.Errorf("%s with %d tools: %s %v", c.name, len(c.tools), text, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	noSchema := named("a")
	noSchema.spec.Schema = json.RawMessage(`{`)
	for want, tools := range map[string][]toolset.Tool{
		"no name":     {named("")},
		"no JSON":     {noSchema},
		"two tools":   {named("a"), named("b"), named("a")},
		"description": {fixed{spec: toolset.Spec{Name: "a", Schema: json.RawMessage(`{}`)}}},
	} {
		if _, err := toolset.New(tools...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A result is valid JSON of a bounded size, whatever a tool answers.
func TestResults(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	output, err := json.Marshal(toolset.Output{Stdout: long})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		result toolset.Result
		want   string
	}{
		"text":        {toolset.Result{Text: "a <b>"}, `{"text":"a \u003cb\u003e"}`},
		"picture":     {toolset.Result{Text: "data:image/png;base64," + strings.Repeat("A", 100)}, `{"text":"[picture left out, 122 bytes]"}`},
		"object":      {toolset.Result{JSON: json.RawMessage(`{"a":1}`)}, `{"a":1}`},
		"failure":     {toolset.Failed("no <b>"), `{"error":"no \u003cb\u003e"}`},
		"no JSON":     {toolset.Result{JSON: json.RawMessage(`{`)}, `{"error":"the result is not understood, or larger than can be kept"}`},
		"long text":   {toolset.Result{Text: long}, `{"text":"\u0001\u0001`},
		"long output": {toolset.Result{JSON: output, Bounded: true}, `{"stdout":"`},
		"long object": {toolset.Result{JSON: output}, `{"text":"{\"stdout\":\"`},
	} {
		t.Run(name, func(t *testing.T) {
			tool := named("a")
			tool.result = c.result
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
			if _, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false); err != nil {
				t.Fatal(err)
			}
			if got := j.Tool("tool:1:1").GetResult(); !strings.HasPrefix(string(got), c.want) || !json.Valid(got) || len(got) > toolset.MaxResult {
				t.Errorf("%d bytes: %.200s", len(got), got)
			}
		})
	}
}

// S1-51: of a long text a model reads the beginning and the end, and how much is missing.
func TestLongText(t *testing.T) {
	const limit = toolset.MaxText
	for _, c := range []struct {
		length  int
		missing string
	}{{limit - 1, ""}, {limit, ""}, {limit + 1, "1"}, {limit + 999, "999"}, {limit + 1_000, "1,000"}, {limit + 1_002_003, "1,002,003"}} {
		text := strings.Repeat("é", limit*6/10) + strings.Repeat("·", max(c.length-limit, 0)) + strings.Repeat("日", limit*4/10)
		want := text
		if c.length < limit {
			text = strings.Repeat("日", c.length)
			want = text
		}
		if c.missing != "" {
			want = strings.Repeat("é", limit*6/10) + "\n[… " + c.missing + " characters left out …]\n" + strings.Repeat("日", limit*4/10)
		}
		tool := named("a")
		tool.result = toolset.Result{Text: text}
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		result, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
		var got struct{ Text string }
		if json.Unmarshal([]byte(result), &got) != nil || err != nil || got.Text != want {
			t.Errorf("%d characters: %d bytes, want %d (%v)", c.length, len(got.Text), len(want), err)
		}
	}
}

// S1-51: a text whose JSON is larger than a result can be is shortened like any other long one, also where the tool has
// bounded it: the largest limits of the settings allow more.
func TestLargestText(t *testing.T) {
	for name, c := range map[string]toolset.Result{
		"escapes":      {Text: strings.Repeat("<", 200_000)},
		"four bytes":   {Text: strings.Repeat("\U0001F600", 200_000)},
		"bounded":      {Text: strings.Repeat("a", 1<<20) + "[the end]", Bounded: true},
		"bounded HTML": {Text: strings.Repeat("<", 200<<10) + "[the end]", Bounded: true},
	} {
		t.Run(name, func(t *testing.T) {
			tool, workdir := named("a"), t.TempDir()
			tool.result = c
			calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{Workdir: workdir, ToolLimits: &registrypb.ToolLimits{ResultChars: 200_000}}, tool)
			result, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
			var got struct {
				Text string
				File string `json:"complete_output"`
			}
			if json.Unmarshal([]byte(result), &got) != nil || err != nil {
				t.Fatalf("%.200s %v", result, err)
			}
			if len(result) < toolset.MaxResult/4 || len(result) > toolset.MaxResult || !strings.HasSuffix(got.Text, c.Text[len(c.Text)-8:]) || !strings.Contains(got.Text, "left out; complete output: "+got.File) {
				t.Errorf("%d bytes: %.200s", len(result), result)
			}
			if b, err := os.ReadFile(filepath.Join(workdir, got.File)); err != nil || string(b) != c.Text {
				t.Errorf("%d bytes are kept, %v", len(b), err)
			}
		})
	}
}

// S4-64, S1-50: the settings say how much of a text a model reads; the complete text is in a file, which a
// repeat of the call writes again.
func TestCompleteText(t *testing.T) {
	text := strings.Repeat("a", 1200) + strings.Repeat("b", 500) + strings.Repeat("c", 800)
	tool := named("a")
	tool.result = toolset.Result{Text: text}
	workdir := t.TempDir()
	for range 2 {
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{Workdir: workdir, ToolLimits: &registrypb.ToolLimits{ResultChars: 2000}}, tool)
		result, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
		var got struct {
			Text string
			File string `json:"complete_output"`
		}
		if json.Unmarshal([]byte(result), &got) != nil || err != nil {
			t.Fatal(result, err)
		}
		if got.File == "" || !strings.Contains(got.Text, got.File) {
			t.Errorf("the result names %q", got.File)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(got.Text, strings.Repeat("a", 1200)+"\n[… 500 characters left out; complete output: "), " ")
		if want := strings.Repeat("a", 1200) + "\n[… 500 characters left out; complete output: " + name + " (read with offset) …]\n" + strings.Repeat("c", 800); got.Text != want {
			t.Fatalf("%s", got.Text)
		}
		if b, err := os.ReadFile(filepath.Join(workdir, name)); err != nil || string(b) != text {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(workdir, ".output")); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// S1-51: a result of JSON is bounded as a text is, unless its tool has bounded it.
func TestLongJSON(t *testing.T) {
	long := `{"list":["` + strings.Repeat("a", 3000) + `"]}`
	workdir := t.TempDir()
	for _, c := range []struct {
		object  string
		bounded bool
		want    string
	}{
		{`{"list":["a"]}`, false, `{"list":["a"]}`},
		{long, true, long},
		{long, false, `{"list":["` + strings.Repeat("a", 1190) + "\n[… 1,013 characters left out; complete output: FILE (read with offset) …]\n" + strings.Repeat("a", 797) + `"]}`},
	} {
		tool := named("a")
		tool.result = toolset.Result{JSON: json.RawMessage(c.object), Bounded: c.bounded}
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{Workdir: workdir, ToolLimits: &registrypb.ToolLimits{ResultChars: 2000}}, tool)
		result, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
		var got struct {
			Text string
			File string `json:"complete_output"`
		}
		if json.Unmarshal([]byte(result), &got) != nil || err != nil {
			t.Fatal(result, err)
		}
		if got.File == "" {
			if result != c.want {
				t.Errorf("%.100s", result)
			}
			continue
		}
		if got.Text != strings.Replace(c.want, "FILE", got.File, 1) {
			t.Errorf("%s", got.Text)
		}
		if b, err := os.ReadFile(filepath.Join(workdir, got.File)); err != nil || string(b) != long {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}

// broken is a tool that does what none should.
type broken struct {
	fixed
	run func(ctx context.Context) toolset.Result
}

func (b broken) Run(ctx context.Context, _ toolset.Call) toolset.Result { return b.run(ctx) }

type brokenEffect struct{ broken }

func (brokenEffect) Class(toolset.Call) toolset.Class { return toolset.Effect }

// S3-42: a tool that panics, one that hangs and one that returns 1 GiB become results for the model, and of a call with an
// effect it is not known what it did.
func TestBrokenTools(t *testing.T) {
	huge := make([]byte, 1<<30) // nothing writes to it, so it takes no memory
	hang := func(ctx context.Context) toolset.Result {
		<-ctx.Done()
		return toolset.Failed(context.Cause(ctx).Error())
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) toolset.Result
		want string
		fine bool
	}{
		{"panic", func(context.Context) toolset.Result { panic("a defect") }, "the tool broke off with a defect of the runtime", false},
		{"hang", hang, "the call was ended after 20ms. It may have done a part of what was asked", false},
		{"end at the last instant", func(ctx context.Context) toolset.Result { <-ctx.Done(); return toolset.Result{Text: "done"} }, `{"text":"done"}`, true},
		{"1 GiB of text", func(context.Context) toolset.Result { return toolset.Result{Text: unsafe.String(&huge[0], len(huge))} }, "characters left out; complete output: .output/a-", true},
		{"1 GiB of JSON", func(context.Context) toolset.Result { return toolset.Result{JSON: huge, Bounded: true} }, "characters left out; complete output: .output/a-", true},
	} {
		one := broken{named("a"), c.run}
		one.spec.Timeout = 20 * time.Millisecond
		tools := []toolset.Tool{one, brokenEffect{one}}
		if c.fine {
			tools = tools[:1]
		}
		for _, tool := range tools {
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{Workdir: t.TempDir()}, tool)
			calls.Panicked = func(value any, _ ...any) string { return fmt.Sprint(value) }
			text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
			if err != nil || !strings.Contains(text, c.want) || len(text) > toolset.MaxResult || !json.Valid([]byte(text)) {
				t.Errorf("%s: %.300s, %v", c.name, text, err)
			}
			want := registrypb.StepState_STEP_STATE_DONE
			if _, ok := tool.(brokenEffect); ok && !c.fine {
				want = registrypb.StepState_STEP_STATE_IN_DOUBT
			}
			if got := j.Tool("tool:1:1").GetState(); got != want {
				t.Errorf("%s: journaled as %v, want %v", c.name, got, want)
			}
		}
	}
}

// F1: what a tool answers in bytes that are not UTF-8 becomes valid.
func TestResultsAreValid(t *testing.T) {
	for name, c := range map[string]struct {
		result toolset.Result
		want   string
	}{
		"text":    {toolset.Result{Text: "a\xffb"}, `{"text":"a` + "\uFFFD" + `b"}`},
		"object":  {toolset.Result{JSON: json.RawMessage("{\"a\":\"\xff\"}")}, `{"a":"` + "\uFFFD" + `"}`},
		"failure": {toolset.Failed("no \xff"), `{"error":"no ` + "\uFFFD" + `"}`},
		"message": {toolset.Result{JSON: json.RawMessage(`{}`), Messages: []toolset.Message{{Text: "m\xff"}}}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			tool := named("a")
			tool.result = c.result
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
			text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false)
			if err != nil || text != c.want || string(j.Tool("tool:1:1").GetResult()) != c.want || !utf8.ValidString(strings.Join(j.Said, "")) {
				t.Errorf("%q, said %q, %v", text, j.Said, err)
			}
		})
	}
	if got := toolset.Fit(json.RawMessage("{\"stdout\":\"\xff\"}")); string(got) != `{"stdout":"`+"\uFFFD"+`"}` {
		t.Errorf("of a program: %q", got)
	}
}

// F9: a call that cannot be made runs nothing, whatever its tool is, and its result says
// why; changed arguments are noted in the result.
func TestRefusedCalls(t *testing.T) {
	tool := named("a")
	tool.result = toolset.Result{JSON: json.RawMessage(`{"ran":true}`)}
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
	for n, c := range []struct {
		call model.ToolCall
		want string
	}{
		{model.ToolCall{Name: "a", Arguments: json.RawMessage(`{"_raw":"["}`), Problem: "no object"}, `{"error":"invalid arguments for a: no object. The schema of the arguments is {\"type\":\"object\"}"}`},
		{model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`), Problem: "too large"}, `{"error":"too large"}`},
		{model.ToolCall{Name: "no tool", Arguments: json.RawMessage(`{"_raw":"["}`), Problem: "no object"}, `{"error":"no object"}`},
		{model.ToolCall{Name: "a", Arguments: json.RawMessage(`[`)}, `{"error":"the arguments are not a JSON object: nothing was run"}`},
		{model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`), Note: "changed"}, `{"note":"changed","ran":true}`},
		{model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, `{"ran":true}`},
	} {
		key := fmt.Sprint("tool:1:", n+1)
		if text, err := toolsettest.Use(t.Context(), calls, key, c.call, true); err != nil || text != c.want || j.Tool(key).GetClass() != registrypb.ToolClass_TOOL_CLASS_READ {
			t.Errorf("%+v: %s %v", c.call, text, err)
		}
	}
}

// F9: arguments are held against the schema of their tool.
func TestSchema(t *testing.T) {
	const schema = `{"type":"object","required":["path","mode"],"additionalProperties":false,"properties":{
		"path":{"type":"string"},"mode":{"enum":["read","write",3]},"lines":{"type":"integer"},"share":{"type":["number","null"]},
		"sure":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
		"env":{"type":"object","additionalProperties":{"type":"string"}},"free":{"type":"object","additionalProperties":true}}}`
	for arguments, want := range map[string]string{
		`{"path":"x","mode":"read"}`: "",
		`{"path":"x","mode":3,"lines":7,"share":0.5,"sure":true,"tags":["a"],"env":{"A":"b"},"free":{"x":[1]}}`: "",
		`{"path":"x","mode":3.0,"lines":7.0,"share":null}`:                                                      "",
		`{}`:                                       "path is missing; mode is missing",
		`{"path":7,"mode":"read"}`:                 "path must be of type string and is of type integer",
		`{"path":"x","mode":"delete"}`:             `mode must be one of ["read","write",3]`,
		`{"path":"x","mode":"read","lines":1.5}`:   "lines must be of type integer and is of type number",
		`{"path":"x","mode":"read","lines":"1"}`:   "lines must be of type integer and is of type string",
		`{"path":"x","mode":"read","share":[]}`:    "share must be of type number or null and is of type array",
		`{"path":"x","mode":"read","tags":[1]}`:    "tags[0] must be of type string",
		`{"path":"x","mode":"read","env":{"A":1}}`: "env.A must be of type string",
		`{"path":"x","mode":"read","what":1}`:      "what is not an argument of this tool",
		`{"path":"x","mode":"read","a\n":1}`:       `"a\n" is not an argument of this tool`,
		`{"path":null,"mode":null,"a":1,"b":1}`:    "a is not an argument of this tool; b is not an argument of this tool; mode must be one of",
		`{"path":"x","mode":1e999}`:                "mode must be one of",
		`[]`:                                       "not a JSON object",
		`{"path":"x","mode":"read"} {}`:            "not a JSON object",
	} {
		tool := named("a")
		tool.spec.Schema = json.RawMessage(schema)
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(arguments)}, false)
		var got struct{ Error string }
		if json.Unmarshal([]byte(text), &got) != nil || err != nil || (want == "") != (got.Error == "") || !strings.Contains(got.Error, want) || len(got.Error) > 4096 {
			t.Errorf("%s: %s, want %q (%v)", arguments, text, want, err)
		}
	}
}

// S2-50, S2-105: a name that differs from that of an argument by its case is not a second way to give it: tools read names in any
// case, and people read of a call what stands under the exact ones.
func TestSchemaCase(t *testing.T) {
	const schema = `{"type":"object","properties":{"url":{"type":"string"},"URI":{"type":"string"},"uri":{"type":"string"}}}`
	for arguments, want := range map[string]string{
		`{"url":"https://example.org","URL":"https://example.net"}`: "URL is not an argument of this tool, url is",
		`{"\u0055rl":"https://example.net"}`:                        "Url is not an argument of this tool, url is",
		`{"url":"a","uri":"b","URI":"c","other":"d"}`:               "",
	} {
		for _, server := range []string{"", "github"} { // which may tell them apart
			tool := named("fetch")
			tool.spec.Server, tool.spec.Schema, tool.result = server, json.RawMessage(schema), toolset.Result{Text: "done"}
			calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
			text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "fetch", Arguments: json.RawMessage(arguments)}, true)
			failure := toolset.Failure([]byte(text))
			if refused := want != "" && server == ""; err != nil || refused != (failure != "") || refused && !strings.Contains(failure, "nothing was run, the arguments do not fit: "+want+".") {
				t.Errorf("%s for %q: %s %v", arguments, server, text, err)
			}
		}
	}
}

// S2-105: the schemas of MCP servers have every keyword, and the model reads which argument is wrong and what was expected.
func TestSchemaKeywords(t *testing.T) {
	for _, c := range []struct{ schema, arguments, want string }{
		{`{"properties":{"a":{"const":"x"}}}`, `{"a":"y"}`, `a must be "x"`},
		{`{"properties":{"a":{"pattern":"^[a-z]+$"}}}`, `{"a":"A"}`, `a must match the pattern "^[a-z]+$"`},
		{`{"properties":{"a":{"minimum":1,"maximum":2.5}}}`, `{"a":0}`, "a must be at least 1"},
		{`{"properties":{"a":{"minimum":1,"maximum":2.5}}}`, `{"a":3}`, "a must be at most 2.5"},
		{`{"properties":{"a":{"minimum":1,"maximum":2.5}}}`, `{"a":2}`, ""},
		{`{"properties":{"a":{"exclusiveMinimum":1,"exclusiveMaximum":5}}}`, `{"a":1}`, "a must be more than 1"},
		{`{"properties":{"a":{"exclusiveMinimum":1,"exclusiveMaximum":5}}}`, `{"a":5}`, "a must be less than 5"},
		{`{"properties":{"a":{"multipleOf":10}}}`, `{"a":15}`, "a must be a multiple of 10"},
		{`{"properties":{"a":{"minLength":2,"maxLength":3}}}`, `{"a":"é"}`, "a must have at least 2 characters and has 1"},
		{`{"properties":{"a":{"minLength":2,"maxLength":3}}}`, `{"a":"éééé"}`, "a must have at most 3 characters and has 4"},
		{`{"properties":{"a":{"minItems":1,"maxItems":2,"uniqueItems":true}}}`, `{"a":[]}`, "a must have at least 1 elements and has 0"},
		{`{"properties":{"a":{"minItems":1,"maxItems":2,"uniqueItems":true}}}`, `{"a":[1,2,3]}`, "a must have at most 2 elements and has 3"},
		{`{"properties":{"a":{"minItems":1,"maxItems":2,"uniqueItems":true}}}`, `{"a":[1,1.0]}`, "a must not have equal elements, as at 0 and 1"},
		{`{"properties":{"a":{"minProperties":1}}}`, `{"a":{}}`, "a must have at least 1 members and has 0"},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, "the object must have at most 1 members and has 2"},
		{`{"properties":{"a":false}}`, `{"a":1}`, "a is not an argument of this tool"},
		{`{"properties":{"a":true}}`, `{"a":1}`, ""},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"},{"type":"integer"}]}}}`, `{"a":[]}`, "a must be of type integer or string or null and is of type array"},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"object","required":["b"],"properties":{"b":{"type":"object","properties":{"c":{"type":"string"}}}}}]}}}`, `{"a":{"b":{"c":1}}}`, "a.b.c must be of type string and is of type integer"},
		{`{"properties":{"a":{"oneOf":[{"type":"integer"},{"type":"number"}]}}}`, `{"a":1}`, "a fits more than one of the forms"},
		{`{"properties":{"a":{"not":{"type":"string"}}}}`, `{"a":"x"}`, "a does not fit"},
		{`{"properties":{"a":{"allOf":[{"type":"string"},{"minLength":2}]}}}`, `{"a":"x"}`, "a must have at least 2 characters"},
		{`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/e"}},"e":{"enum":["x"]}}}`, `{"a":["x","y"]}`, `a[1] must be one of ["x"]`},
		{`{"properties":{"a":{"$ref":"#/definitions/t"}},"definitions":{"t":{"type":"string"}}}`, `{"a":1}`, "a must be of type string"},
		{`{"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]}}`, `{"a":1}`, "b is missing"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "b is missing, which a needs"},
		{`{"patternProperties":{"^x":{"type":"string"}},"additionalProperties":false}`, `{"x1":1,"y":2}`, "x1 must be of type string and is of type integer; y is not an argument of this tool"},
		{`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "abc is a name that is not allowed"},
		{`{"properties":{"a":{"prefixItems":[{"type":"string"}],"items":false}}}`, `{"a":["x",1]}`, "] is not allowed"},
		// Of earlier versions, named and not: tuples, and bounds that are a yes or no.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"a":[1]}`, "a[0] must be of type string"},
		{`{"properties":{"a":{"items":[{"type":"string"},{"type":"integer"}]}}}`, `{"a":["x","y"]}`, "a[1] must be of type integer"},
		{`{"properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, `{"a":1}`, "a must be more than 1"},
		// A format is a note.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"date"}}}`, `{"a":"tomorrow"}`, ""},
	} {
		tool := named("a")
		tool.spec.Schema = json.RawMessage(c.schema)
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		calls.Logf = func(level, format string, args ...any) {
			if level == "WARN" {
				t.Errorf("%s: "+format, append([]any{c.schema}, args...)...)
			}
		}
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(c.arguments)}, false)
		var got struct{ Error string }
		if json.Unmarshal([]byte(text), &got) != nil || err != nil || (c.want == "") != (got.Error == "") || !strings.Contains(got.Error, c.want) {
			t.Errorf("%s, %s: %s, want %q (%v)", c.schema, c.arguments, text, c.want, err)
		}
	}
}

// A schema from outside that cannot be used refuses no call: the log says why. None makes a check endless, reads another
// document or ends the process.
func TestSchemaFromOutside(t *testing.T) {
	var twice strings.Builder // 2^60 paths
	for n := range 60 {
		fmt.Fprintf(&twice, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, n, n+1, n+1)
	}
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	for _, c := range []struct{ schema, arguments, logged, refused string }{
		{`{"$ref":"https://example.com/schema.json"}`, `{}`, "another document", ""},
		{`{"$ref":"file:///etc/passwd"}`, `{}`, "another document", ""},
		{`{"$schema":"https://example.com/own"}`, `{}`, "another document", ""},
		{`{"$ref":"#"}`, `{}`, "refers to itself", ""},
		{`{"$ref":"#/$defs/none"}`, `{}`, "none", ""},
		{`{"type":"objekt"}`, `{}`, "type", ""},
		{`{"properties":7}`, `{}`, "properties", ""},
		{`{"minimum":1e999}`, `{}`, "1e999", ""},
		{`[1]`, `{}`, "", ""},
		{`{"allOf":[{"$ref":"#/$defs/d0"}],"$defs":{` + twice.String() + `"d60":{"type":"string"}}}`, `{}`, "takes too long", ""},
		{`{"properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, deep, "", ""},
		{`{"properties":{"a":{"pattern":"^(?!x)"},"b":{"type":"string"}}}`, `{"a":"x","b":"y"}`, "not of RE2: ^(?!x)", ""},
		{`{"properties":{"a":{"pattern":"^(?!x)"},"b":{"type":"string"}}}`, `{"a":"x","b":1}`, "not of RE2", "b must be of type string"},
		{`{"properties":{"a":{"not":{"pattern":"^(?!x)"}}}}`, `{"a":"y"}`, "not of RE2", ""},
		{`{"patternProperties":{"^(?!x)":{"type":"string"}}}`, `{"a":1}`, "not of RE2", ""},
	} {
		tool := named("a")
		tool.spec.Schema, tool.result = json.RawMessage(c.schema), toolset.Result{Text: "ran"}
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		var logged string
		calls.Logf = func(level, format string, args ...any) {
			if level == "WARN" {
				logged += fmt.Sprintf(format, args...)
			}
		}
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: json.RawMessage(c.arguments)}, false)
		if err != nil || (text == `{"text":"ran"}`) != (c.refused == "") || !strings.Contains(text, c.refused) {
			t.Errorf("%.200s: %.300s, want %q, %v", c.schema, text, c.refused, err)
		}
		if !strings.Contains(logged, c.logged) || (logged == "") != (c.logged == "") && c.schema != "[1]" || len(logged) > 500 {
			t.Errorf("%.200s: logged %q, want %q", c.schema, logged, c.logged)
		}
	}
}

// BenchmarkArguments holds the arguments of a call against a schema; compiling it is not part of a call.
func BenchmarkArguments(b *testing.B) {
	tool := named("a")
	tool.spec.Schema = json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,"properties":{"path":{"type":"string"},"lines":{"type":"array","items":{"type":"integer"}}}}`)
	tools, err := toolset.New(tool)
	if err != nil {
		b.Fatal(err)
	}
	set := tools.Set(&registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Name: "all", Allow: []string{"*"}}}})
	b.ReportAllocs()
	for b.Loop() {
		if set.Class(toolset.Call{Name: "a", Args: json.RawMessage(`{"path":"notes.md","lines":[1,2,3]}`)}) != toolset.Read {
			b.Fatal("refused")
		}
	}
}

// F9: no arguments make the check fail itself, and what it answers is valid.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","enum":["x"]}},"required":["a"]}`), []byte(`{"a":1}`))
	f.Add([]byte(`{"additionalProperties":{"items":{"type":["null"]}}}`), []byte(`{"a":[[1e999]]}`))
	f.Fuzz(func(t *testing.T, schema, arguments []byte) {
		tool := named("a")
		tool.spec.Schema, tool.result = schema, toolset.Result{Text: "ran"}
		if !json.Valid(schema) {
			return
		}
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		calls.Logf = func(string, string, ...any) {}
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "a", Arguments: arguments}, false)
		if err != nil || !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// background is a tool that is another one where the set has the tool process.
type background struct{ fixed }

func (b background) In(_ *registrypb.TurnConfig, offers func(string) bool) toolset.Tool {
	if !offers("process") {
		return b
	}
	b.spec.Description, b.result.Text = "y", "with process"
	return b
}

// a presentation gives tools their names in a set; a call by any of the names makes the same
// tool, a tool may be another one in a set with others, and its name in policies stays.
func TestPresentations(t *testing.T) {
	tools := []toolset.Tool{background{named("bash_exec")}, named("read"), named("write"), named("message_send"), named("process")}
	for presentation, want := range map[string]string{
		"": "bash_exec message_send process read write", "theclaw": "bash_exec message_send process read write",
		"openclaw": "exec message process read write", "agentclaw": "file_read file_write message_send process shell",
	} {
		config := &registrypb.TurnConfig{Presentation: presentation, ToolLayers: []*registrypb.ToolLayer{{Name: "all", Allow: []string{"*"}}}}
		calls, _ := toolsettest.Calls(t, config, tools...)
		var names, entries []string
		for _, tool := range calls.Set.Offered() {
			names = append(names, tool.Name)
		}
		for _, e := range calls.Set.Entries() {
			entries = append(entries, e.Spec.Name)
		}
		if got := strings.Join(names, " "); got != want || strings.Join(entries, " ") != want {
			t.Errorf("%q offers %s and lists %s", presentation, got, entries)
		}
		for n, name := range []string{"bash_exec", "exec", "shell", "bash"} {
			text, err := toolsettest.Use(t.Context(), calls, fmt.Sprintf("tool:1:%d", n+1), model.ToolCall{Name: name, Arguments: json.RawMessage(`{}`)}, false)
			if err != nil || text != `{"text":"with process"}` {
				t.Errorf("%q, %s: %s %v", presentation, name, text, err)
			}
		}
		config.ToolLayers[0].Deny = []string{"process"}
		calls, _ = toolsettest.Calls(t, config, tools...)
		for _, tool := range calls.Set.Offered() {
			if tool.Description != "x" {
				t.Errorf("%q: %s is as if process were offered", presentation, tool.Name)
			}
		}
	}
}
