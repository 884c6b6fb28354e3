package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const newsPage = `<!doctype html><html><head><meta charset="utf-8"><title>River &amp; Bridge</title><style>p{color:red}</style>
<script>var secret = "SCRIPT";</script></head><body><nav><a href="/home">Home</a> <a href="/shop">Shop</a></nav>
<article><h1>The bridge opens</h1>%s<p>See <a href="/plans?a=1">the plans</a> and <code>make bridge</code>.</p>
<table><tr><th>Year</th><th>Cars</th></tr><tr><td>2025</td><td>12</td></tr></table>
<img alt="pixel" src="data:image/png;base64,%s"></article>
<footer>Imprint</footer></body></html>`

func newsArticle() string {
	return fmt.Sprintf(newsPage, strings.Repeat("<p>The new bridge over the river was opened today, after nine years of work, and many people came to see it, walk over it, and talk.</p>", 8),
		strings.Repeat("QUJD", 50_000))
}

// TestFetch is S3-47: what becomes of the types of content.
func TestFetch(t *testing.T) {
	latin := "gr\xfc\xdfe" // grüße in ISO 8859-1 and windows-1252
	for name, c := range map[string]struct {
		kind, body string
		title      string
		want, not  []string
	}{
		"article": {
			"text/html; charset=utf-8", newsArticle(), "River & Bridge",
			[]string{"after nine years", "[the plans](http://", "/plans?a=1)", "`make bridge`", "| Year", "2025"},
			[]string{"SCRIPT", "color:red", "Shop", "QUJD", "<p>"},
		},
		"page without an article": {"text/html", "<title>T</title><body><h1>Menu</h1><ul><li>one<li>two</ul><script>SCRIPT</script>", "T", []string{"one", "two"}, []string{"SCRIPT", "<li>"}},
		"charset of the header":   {"text/html; charset=ISO-8859-1", "<p>" + latin, "", []string{"grüße"}, nil},
		"charset of meta":         {"text/html", `<meta charset="windows-1251"><p>` + "\xcf\xf0\xe8\xe2\xe5\xf2", "", []string{"Привет"}, nil},
		"byte order mark":         {"text/html; charset=ISO-8859-1", "\xef\xbb\xbf<p>grüße", "", []string{"grüße"}, []string{"\ufeff", "Ã"}},
		"UTF-16":                  {"text/plain", "\xff\xfeg\x00r\x00\xfc\x00", "", []string{"grü"}, nil},
		"GBK":                     {"text/plain; charset=gbk", "\xc4\xe3\xba\xc3", "", []string{"你好"}, nil},
		"no charset, late UTF-8":  {"text/plain", strings.Repeat("a", 2000) + "grüße", "", []string{"grüße"}, nil},
		"no charset, not UTF-8":   {"text/plain", latin, "", []string{"grüße"}, nil},
		"wrong charset":           {"text/plain; charset=utf-8", latin, "", []string{"gr\ufffde"}, nil},
		"JSON":                    {"application/json", `{"b":[1,2],"a":"<ü>"}`, "", []string{"{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": \"<ü>\"\n}"}, nil},
		"charset of JSON":         {"application/json; charset=ISO-8859-1", `{"a":"` + latin + `"}`, "", []string{"{\n  \"a\": \"grüße\"\n}"}, nil},
		"marked JSON":             {"application/json", "\xef\xbb\xbf" + `{"a":1}`, "", []string{"{\n  \"a\": 1\n}"}, []string{"\ufeff"}},
		"7-bit charset of meta":   {"text/html", `<meta charset="iso-2022-jp"><p>` + "\x1b$BF|K\\\x1b(B", "", []string{"日本"}, []string{"$B"}},
		"problem+json":            {"application/problem+json; charset=utf-8", `{"a":1}`, "", []string{"{\n  \"a\": 1\n}"}, nil},
		"broken JSON":             {"application/json", `{"a":`, "", []string{`{"a":`}, nil},
		"XML":                     {"application/rss+xml", "<rss><item>x</item></rss>", "", []string{"<rss><item>x</item></rss>"}, nil},
		"control characters":      {"text/plain", "a\x1b[31mb\r\nc\td", "", []string{"a[31mb\nc\td"}, []string{"\x1b", "\r"}},
		"a picture":               {"image/png", "\x89PNG\r\n\x1a\n....", "", []string{"[no text: image/png, 12 bytes]"}, []string{"PNG"}},
		"a program as text":       {"text/plain", "\x7fELF\x00\x00", "", []string{"[no text: text/plain, 6 bytes]"}, []string{"ELF"}},
		"no type, text":           {"", "plain words", "", []string{"plain words"}, nil},
		"no type, a page":         {"", "<html><body><p>words", "", []string{"words"}, []string{"<p>"}},
		"nothing":                 {"text/html", "", "", nil, nil},
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			respond(c.kind, c.body)(w, r)
		})
		var got page
		run(t, tool(t, "web_fetch", options()), map[string]string{"url": url + "/a?b=c"}, &got)
		if got.URL != url+"/a?b=c" || got.FinalURL != got.URL || got.Status != 200 || got.Title != c.title || !utf8.ValidString(got.Text) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%s: no %q in %q", name, want, got.Text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(got.Text, not) {
				t.Errorf("%s: %q in %.2000q", name, not, got.Text)
			}
		}
	}
}

// TestLength: S3-47 and S4-64, the limit in characters and what is said about the rest.
func TestLength(t *testing.T) {
	url := serve(t, respond("text/plain", strings.Repeat("ü", 10_001)))
	o := options()
	for _, c := range []struct{ setting, argument, chars, left int }{
		{0, 0, 10_000, 1}, {0, 10_001, 10_001, 0}, {0, 1, 1, 10_000}, {0, 200_000, 10_001, 0}, {100, 0, 100, 9_901}, {100, 200, 200, 9_801},
	} {
		o.Fetch.MaxChars = c.setting
		arguments := map[string]any{"url": url}
		if c.argument > 0 {
			arguments["max_length"] = c.argument
		}
		var got page
		run(t, tool(t, "web_fetch", o), arguments, &got)
		want := strings.Repeat("ü", c.chars)
		if c.left > 0 {
			want += fmt.Sprintf("\n[… %s characters left out …]", strings.TrimLeft(fmt.Sprintf("%d,%03d", c.left/1000, c.left%1000), "0,"))
		}
		if got.Text != want {
			t.Errorf("%+v: %d characters, %q", c, utf8.RuneCountInString(got.Text), got.Text[max(0, len(got.Text)-100):])
		}
	}
}

// TestComplete: S4-64, a text of which the model reads a part is complete in a file, between the marks of
// external content.
func TestComplete(t *testing.T) {
	url := serve(t, respond("text/plain", strings.Repeat("ü", 10_001)))
	workdir := t.TempDir()
	r := tool(t, "web_fetch", options()).Run(t.Context(), toolset.Call{
		Key: "turn:tool:1:1", Name: "web-fetch", Args: json.RawMessage(`{"url":"` + url + `"}`), Place: toolset.Place{Config: &registrypb.TurnConfig{Workdir: workdir}},
	})
	var got page
	if err := json.Unmarshal(r.JSON, &got); err != nil {
		t.Fatal(r.Text, err)
	}
	_, note, _ := strings.Cut(got.Text, "\n")
	var name string
	if _, err := fmt.Sscanf(note, "[… 1 characters left out; complete output: %s (read with offset) …]", &name); err != nil || !strings.HasPrefix(name, ".output/web_fetch-") || got.File != name {
		t.Fatalf("%q %v", note, err)
	}
	b, err := os.ReadFile(filepath.Join(workdir, name))
	if want := got.Begin + "\n" + strings.Repeat("ü", 10_001) + "\n" + got.End + "\n"; err != nil || string(b) != want {
		t.Errorf("%d bytes of %d, %v", len(b), len(want), err)
	}
}

// TestLargest: 200,000 characters that JSON writes with six bytes each are cut to what a
// result may hold; run checks its size.
func TestLargest(t *testing.T) {
	url := serve(t, respond("text/plain; charset=utf-8", strings.Repeat("\u2028", 250_000)))
	var got page
	run(t, with{tool(t, "web_fetch", options()), &registrypb.TurnConfig{ToolLimits: &registrypb.ToolLimits{ResultChars: 200_000}}}, map[string]any{"url": url, "max_length": 200_000}, &got)
	if !strings.HasSuffix(got.Text, "[… 150,000 characters left out …]") || got.End == "" {
		t.Errorf("%q", got.Text[max(0, len(got.Text)-100):])
	}
}

// bomb is 64 MiB in 64 KiB.
func bomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range 1 << 6 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBodyLimit is S4-64: 2 MiB are read of a body, at its border, of one without an end,
// and of a gzip bomb after decoding.
func TestBodyLimit(t *testing.T) {
	packed := bomb(t)
	for name, c := range map[string]struct {
		body func(w http.ResponseWriter)
		cut  bool
	}{
		"at the limit":   {func(w http.ResponseWriter) { w.Write(bytes.Repeat([]byte("a"), MaxBody)) }, false},
		"one byte more":  {func(w http.ResponseWriter) { w.Write(bytes.Repeat([]byte("a"), MaxBody+1)) }, true},
		"split at the ü": {func(w http.ResponseWriter) { io.WriteString(w, "a"+strings.Repeat("ü", MaxBody/2)) }, true},
		"endless": {func(w http.ResponseWriter) {
			for piece := make([]byte, 1<<16); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, true},
		"gzip bomb": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(packed)
		}, true},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			c.body(w)
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var got page
		run(t, tool(t, "web_fetch", options()), map[string]string{"url": url}, &got)
		runtime.ReadMemStats(&after)
		if (got.Truncated != "") != c.cut || c.cut && got.Truncated != "the body is longer than 2097152 bytes, and the rest of it was not read" {
			t.Errorf("%s: truncated %q", name, got.Truncated)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 32<<20 {
			t.Errorf("%s: %d MiB allocated", name, allocated>>20)
		}
		var through answered
		run(t, tool(t, "http_request", options()), map[string]string{"url": url}, &through)
		if (through.Truncated != "") != c.cut {
			t.Errorf("%s: http_request says %q", name, through.Truncated)
		}
	}
}

// TestHostilePages: pages that are made to cost much become text, and what is allocated for
// them is bounded. Nested 50,000 tags become plain text.
func TestHostilePages(t *testing.T) {
	word := "needle in the page"
	nested := func(open, end string, n int) string {
		return "<body>" + strings.Repeat(open, n) + word + strings.Repeat(end, n)
	}
	for name, body := range map[string]string{
		"nested 50,000 tags":         nested("<div>", "</div>", 50_000),
		"nested 500 tags":            nested("<div>", "</div>", 500),
		"nested quotes":              nested("<blockquote>", "</blockquote>", 250),
		"nested lists":               nested("<ul><li>", "</li></ul>", 240),
		"nested tables":              nested("<table><tr><td>", "</td></tr></table>", 120),
		"nested formatting":          nested("<b><i>", "</i></b>", 240),
		"100,000 open formats":       nested("<b>", "", 100_000),
		"misnested formats":          "<body>" + strings.Repeat("<a><b><p>x</a>", 30_000) + word,
		"2 MiB of elements":          "<body><p>" + word + "</p>" + strings.Repeat("<p>a</p>", MaxBody/8),
		"19,000 paragraphs":          "<body><p>" + word + "</p>" + strings.Repeat("<p>a, b, c, d, e</p>", 19_000),
		"19,000 links":               "<body><p>" + word + "</p>" + strings.Repeat("<a href=x>a</a> ", 19_000),
		"19,000 line breaks":         "<body><div>" + word + strings.Repeat("<br>", 19_000) + "</div>",
		"a cell of a million":        "<body><table><tr><td>" + word + strings.Repeat("<td>x", 1000) + "<tr><td colspan=1000000000 rowspan=1000000000>x" + "</table>",
		"a wide and long table":      "<body><table><tr><td>" + word + strings.Repeat("<td>x", 8_000) + strings.Repeat("<tr><td>x", 5_000) + "</table>",
		"a long cell":                "<body><table><tr><td>" + word + strings.Repeat("y", 1<<20) + strings.Repeat("<tr><td>x", 5_000) + "</table>",
		"a long attribute":           "<body><p title=" + strings.Repeat("y", 1<<20) + ">" + word,
		"a million of special signs": "<body><p>" + word + strings.Repeat("*_`[", 1<<18) + "</p>",
		"a million of entities":      "<body><p>" + word + strings.Repeat("&amp;", 1<<18) + "</p>",
		"a long text in quotes":      nested("<blockquote>", "<br>line", 1) + strings.Repeat("<blockquote>", 240) + strings.Repeat("<br>line", 18_000),
		"a long text in 16 quotes":   "<body>" + word + strings.Repeat("<blockquote>", 16) + strings.Repeat("<br>line", 18_000),
		"a long text in lists":       nested("<p>", "</p>", 1) + strings.Repeat("<ul><li>", 120) + strings.Repeat("<br>line", 18_000),
		"a list of 19,000":           "<body>" + word + "<ol>" + strings.Repeat("<li>x", 19_000),
		"19,000 codes":               "<body>" + word + strings.Repeat("<code>```</code>", 19_000),
		"a code of ticks":            "<body>" + word + "<pre>" + strings.Repeat("`\n", 1<<19) + "</pre>",
		"code of ticks in a line":    "<body>" + word + "<code>" + strings.Repeat("` ", 1<<19) + "</code>",
		"spaces":                     "<body>" + word + "<p>" + strings.Repeat(" ", 1<<20) + "<p>" + strings.Repeat("\n", 1<<20),
		"no-break spaces":            "<body>" + word + "<p>" + strings.Repeat("\u00a0", 1<<19),
		"bold words":                 "<body>" + word + "<p>" + strings.Repeat("<b> a </b>", 19_000),
		"commas":                     "<body>" + word + "<p>" + strings.Repeat(", ", 1<<19),
		"JSON-LD":                    `<body>` + word + `<script type="application/ld+json">` + strings.Repeat("[", 1<<20) + "</script>",
		"many metas":                 `<head>` + strings.Repeat(`<meta property="og:title dc:title" content="a">`, 19_000) + "</head><body>" + word,
		"a long title":               `<title>` + strings.Repeat(`a - b | c : `, 1<<16) + "</title><body>" + word,
		"a long class":               "<body>" + word + strings.Repeat("<div class='"+strings.Repeat("comment-", 10)+"'>text, text</div>", 15_000),
		"a script without an end":    "<body><p>" + word + "</p><script>" + strings.Repeat("x", 1<<20),
	} {
		url := serve(t, respond("text/html; charset=utf-8", body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		var got page
		run(t, tool(t, "web_fetch", options()), map[string]any{"url": url, "max_length": 200_000}, &got)
		runtime.ReadMemStats(&after)
		if !strings.Contains(got.Text, word) {
			t.Errorf("%s: %.200q", name, got.Text)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		if allocated > 160<<20 {
			t.Errorf("%s: %d MiB allocated", name, allocated>>20)
		}
		t.Logf("%-28s %4d MiB allocated, %v", name, allocated>>20, time.Since(start))
	}
}

// FuzzRead: whatever a server sends becomes valid text without control characters.
func FuzzRead(f *testing.F) {
	f.Add("text/html", []byte(newsArticle()))
	f.Add("text/html; charset=utf-16", []byte("<\x00p\x00>\x00"))
	f.Add("text/html", []byte("<table><tr><td colspan=9>a<tr><td rowspan=9><table><tr><th>"))
	f.Add("text/html", []byte("<ol start=-9><li><pre><code>```<a href=x><img src=data:,a><h1><br></a>"))
	f.Add("application/json", []byte(`{"a":"\u0000"}`))
	f.Add("", []byte("\xff\xfe\x00\xd8"))
	at := &url.URL{Scheme: "https", Host: "example.org"}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		title, text := read(response{url: at, header: http.Header{"Content-Type": {kind}}, body: body})
		for _, s := range []string{title, text} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
				t.Errorf("%q of type %q became %q", body, kind, s)
			}
		}
		if strings.ContainsAny(title, "\n\t") {
			t.Errorf("the title %q has several lines", title)
		}
	})
}
