package layer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/agentdir/config"
)

const programsText = `tools:
  deny: [cron]
  programs:
    resize:
      argv: [convert, '{file}', -resize, '{width}', '--tag={tag}', small.png]
      description: Makes a small copy of a picture.
      schema:
        properties:
          file: {type: string, description: "its <name>"}
          width: {type: integer, enum: [80, 160], default: 80.5}
          tag: {type: array, items: {type: string}}
        required: [file]
      network: [api.example.org]
      timeout: 10m
      class: idempotent
    count_words: {argv: [/usr/bin/wc], description: Counts., input: stdin}
`

// S3-58, S4-66: the programs of a home that are tools, in the order of their names.
func TestPrograms(t *testing.T) {
	want := []Program{
		{Name: "count_words", Argv: []string{"/usr/bin/wc"}, Description: "Counts.", Stdin: true, Schema: `{"properties":{},"type":"object"}`, Timeout: time.Minute, Class: "effect"},
		{
			Name: "resize", Argv: []string{"convert", "{file}", "-resize", "{width}", "--tag={tag}", "small.png"}, Description: "Makes a small copy of a picture.",
			Schema: `{"additionalProperties":false,"properties":{"file":{"description":"its <name>","type":"string"},"tag":{"items":{"type":"string"},"type":"array"},` +
				`"width":{"default":80.5,"enum":[80,160],"type":"integer"}},"required":["file"],"type":"object"}`,
			Network: config.Network{Hosts: []string{"api.example.org"}}, Timeout: 10 * time.Minute, Class: "idempotent",
		},
	}
	l := load(t, Layers{AgentID: "a1", Home: home(programsText), Agent: File{"config.yaml", []byte("agent_id: a1\n")}})
	if d := cmp.Diff(want, l.Programs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"cron"}, l.Config.HomeTools.Deny); d != "" {
		t.Error("the other keys of tools are lost:", d)
	}
	json5 := File{"theclaw.json5", []byte(`{tools: {programs: {count_words: {argv: ['/usr/bin/wc'], description: 'Counts.', input: 'stdin', schema: {}}}}}`)}
	if got, err := ReadHome(json5); err != nil || !cmp.Equal(want[:1], got.Programs) {
		t.Errorf("%+v %v", got.Programs, err)
	}
	for _, text := range []string{"tools:\n", "tools: {}\n", "tools:\n  programs:\n", "tools: {deny: [x]}\n"} {
		if got, err := ReadHome(home(text)); err != nil || len(got.Programs) != 0 {
			t.Errorf("%q: %v %v", text, got.Programs, err)
		}
	}
}

// Each limit, at its border.
func TestProgramLimits(t *testing.T) {
	list := func(n int, form string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(form, i))
		}
		return strings.Join(out, ", ")
	}
	named := func(name, attributes string) string {
		return "tools: {programs: {" + name + ": {" + attributes + "}}}\n"
	}
	one := func(attributes string) string { return named("p", attributes) }
	with := func(more string) string { return one("argv: [x], description: d, " + more) }
	schema := func(text string) string { return with("input: stdin, schema: {" + text + "}") }
	many := func(n int) string {
		return "tools: {programs: {" + list(n, "p%d: {argv: [x], description: d}") + "}}\n"
	}
	nested := func(n int) string {
		return schema("properties: {a: " + strings.Repeat("{items: ", n) + "{type: string}" + strings.Repeat("}", n) + "}")
	}
	for _, c := range []struct{ good, bad, problem string }{
		{many(20), many(21), "there are 21 programs, and 20 are the most"},
		{named("a_b2", "argv: [x], description: d"), named("a__b", "argv: [x], description: d"), "is not the name of a tool"},
		{named(strings.Repeat("p", 64), "argv: [x], description: d"), named(strings.Repeat("p", 65), "argv: [x], description: d"), "is not the name of a tool"},
		{"", named("a-b", "argv: [x], description: d"), "is not the name of a tool"},
		{"", named("A", "argv: [x], description: d"), "is not the name of a tool"},
		{"", named("exec", "argv: [x], description: d"), "exec is the name of a tool that is built in"},
		{"", named("bash", "argv: [x], description: d"), "bash is the name of a tool that is built in"},
		{"", named("bash_exec", "argv: [x], description: d"), "is the name of a tool that is built in"},
		{"", named("web_fetch", "argv: [x], description: d"), "is the name of a tool that is built in"},
		{"", named("python", "argv: [x], description: d"), "is the name of a tool that is built in"},
		{"", named("sessions_spawn", "argv: [x], description: d"), "is the name of a tool that is built in"},
		{"", "tools: {programs: [a]}\n", "wants the name of a tool"},
		{"", one("description: d"), "argv: must be a list of 1 to 64 words"},
		{one("description: d, argv: [" + list(64, "w%d") + "]"), one("description: d, argv: [" + list(65, "w%d") + "]"), "must be a list of 1 to 64 words"},
		{"", one("argv: [./x], description: d"), "must be the name of a program or an absolute path"},
		{"", one("argv: [bin/x], description: d"), "must be the name of a program or an absolute path"},
		{"", one("argv: [/bin/../x], description: d"), "must be the name of a program or an absolute path"},
		{"", one("argv: ['{a}'], description: d, schema: {properties: {a: {}}}"), "the program itself must not depend on the arguments"},
		{"", one("argv: [x, '{a}{b}'], description: d"), "has two placeholders"},
		{"", one("argv: [x, '{a}'], description: d"), "{a} is not among the properties of schema"},
		{"", with("schema: {properties: {a: {}}}"), "no word has {a}"},
		{with("input: stdin, schema: {properties: {a: {}}}"), with("input: file"), `"file" is not args or stdin`},
		{"", one("argv: [x]"), "description: must be one line"},
		{one("argv: [x], description: " + strings.Repeat("d", 1024)), one("argv: [x], description: " + strings.Repeat("d", 1025)), "description: must be one line"},
		{with("class: read"), with("class: write"), "is not one of read, idempotent, effect"},
		{with("network: open"), with("network: ['https://a.org']"), "is no host"},
		{with("timeout: 1s"), with("timeout: 999ms"), "is not between 1s and 1h"},
		{with("timeout: 1h"), with("timeout: 3601s"), "is not between 1s and 1h"},
		{"", with("timeout: soon"), "timeout: must be a duration"},
		{"", with("schema: [a]"), "must have `key: value` lines"},
		{schema("type: object"), schema("type: array"), "schema.type must be object"},
		{schema("properties: {a: {type: [string, 'null']}}"), schema("properties: {a: {type: int}}"), "schema.properties.a.type must be one of string"},
		{"", schema("properties: {a: {pattern: x}}"), "schema.properties.a.pattern is not checked"},
		{"", schema("properties: {a: string}"), "schema.properties.a must be a schema"},
		{"", schema("properties: {'a b': {}}"), "is not the name of an argument"},
		{"", schema("properties: [a]"), "schema.properties must have the name of an argument"},
		{"", schema("required: [a]"), `"a" is not among the properties`},
		{"", schema("required: a"), "schema.required must be a list of texts"},
		{"", schema("properties: {a: {enum: []}}"), "schema.properties.a.enum must be a list"},
		{schema("additionalProperties: false"), schema("additionalProperties: {type: string}"), "must be true or false"},
		{"", schema("properties: {a: {default: .nan}}"), "put the value in quotes"},
		{nested(7), nested(8), "nested more than 8 deep"},
		{schema("description: " + strings.Repeat("d", 8000)), schema("description: " + strings.Repeat("d", 8192)), "8192 are the most"},
		{"", with("argw: [y]"), "unknown key \"argw\""},
		{"", "agents: {defaults: {tools: {programs: {p: {argv: [x], description: d}}}}}\n", "tools.programs belongs at the top of theclaw.yaml"},
		{"", "agents: {list: [{id: a1, tools: {programs: {p: {argv: [x], description: d}}}}]}\n", "tools.programs belongs at the top of theclaw.yaml"},
	} {
		if c.good != "" {
			if _, err := ReadHome(home(c.good)); err != nil {
				t.Errorf("%.120s: %v", c.good, err)
			}
		}
		if _, err := ReadHome(home(c.bad)); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%.120s: %v, want %s", c.bad, err, c.problem)
		}
	}
	_, err := Load(Layers{AgentID: "a1", Agent: File{"config.yaml", []byte("agent_id: a1\ntools: {programs: {}}\n")}})
	if err == nil || !strings.Contains(err.Error(), "tools.programs belongs at the top of theclaw.yaml") {
		t.Errorf("config.yaml: %v", err)
	}
}
