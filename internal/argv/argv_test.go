package argv_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/argv"
)

func TestFill(t *testing.T) {
	template := strings.Fields("resize --width={width} --tag={tag} {flag} -- {file}")
	for _, c := range []struct {
		template  []string
		arguments string
		want      []string
		err       string
	}{
		{template, `{}`, []string{"resize", "--"}, ""},
		{template, `{"width":80,"file":"a b.png"}`, []string{"resize", "--width=80", "--", "a b.png"}, ""},
		{template, `{"width":1e3,"tag":["x","y"],"flag":true,"file":["-r","$(id)","'; rm x"]}`, []string{"resize", "--width=1e3", "--tag=x", "--tag=y", "true", "--", "-r", "$(id)", "'; rm x"}, ""},
		{template, `{"tag":[],"width":null,"file":""}`, []string{"resize", "--", ""}, ""},
		{template, `{"width":"80 --exec=id","file":"{width}"}`, []string{"resize", "--width=80 --exec=id", "--", "{width}"}, ""},
		{template, `{"unknown":1}`, []string{"resize", "--"}, ""},
		{template, `{"flag":"--exec=id"}`, nil, "flag must not begin with -"},
		{template, `{"flag":["x","-"]}`, nil, "flag must not begin with -"},
		{template, `{"flag":-1}`, nil, "flag must not begin with -"},
		{[]string{"p", "{a}-x"}, `{"a":""}`, nil, "a must not begin with -"},
		{[]string{"p", "-{a}"}, `{"a":"-x"}`, []string{"p", "--x"}, ""},
		{[]string{"p", "{not a name}", "{1}", "${a}"}, `{"a":"v"}`, []string{"p", "{not a name}", "{1}", "$v"}, ""},
		{template, `{"file":{"a":1}}`, nil, "file must be a text"},
		{template, `{"file":[["a"]]}`, nil, "file must be a text"},
		{template, `{"file":[null]}`, nil, "file has a null"},
		{template, `{"file":"a\u0000b"}`, nil, "file has a character of code 0"},
		{template, `[]`, nil, "not a JSON object"},
		{template, `{"file":"` + strings.Repeat("x", argv.MaxBytes-len("resize -- ")-1) + `"}`, []string{"resize", "--", strings.Repeat("x", argv.MaxBytes-len("resize -- ")-1)}, ""},
		{template, `{"file":"` + strings.Repeat("x", argv.MaxBytes-len("resize -- ")) + `"}`, nil, "larger than 127 KiB"},
	} {
		got, err := argv.Fill(c.template, json.RawMessage(c.arguments))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.80s: %v, want %q", c.arguments, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%.80s: %.200q %v, want %.200q", c.arguments, got, err, c.want)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	for _, c := range []struct {
		template, want, err string
	}{
		{"p --b={b} {a} x{a}", "a b", ""},
		{"p x {} {9}", "", ""},
		{"{a} x", "", "the program itself"},
		{"p {a}{b}", "", "two placeholders"},
	} {
		got, err := argv.Placeholders(strings.Fields(c.template))
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q %v", c.template, got, err)
		}
	}
}

// No value adds a word, an option or an end of options, whatever it is.
func FuzzFill(f *testing.F) {
	for _, seed := range []string{"", "-x", "--", "a b", "{b}", "\x00", "'", "$(id)"} {
		f.Add(seed)
	}
	template := []string{"p", "--o={a}", "{a}", "--", "{a}"}
	f.Fuzz(func(t *testing.T, value string) {
		arguments, err := json.Marshal(map[string]string{"a": value})
		if err != nil {
			t.Fatal(err)
		}
		words, err := argv.Fill(template, arguments)
		if err != nil {
			return
		}
		if len(words) != len(template) || words[0] != "p" || !strings.HasPrefix(words[1], "--o=") || strings.HasPrefix(words[2], "-") || words[3] != "--" {
			t.Errorf("%q became %q", value, words)
		}
	})
}
