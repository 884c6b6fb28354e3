package file_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/testing/need"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/file"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agent is a working directory and the tools.
type agent struct {
	testing.TB
	dir    string
	turn   string
	config *registrypb.TurnConfig
	set    toolset.Set
	all    []toolset.Tool
	calls  int
}

func newAgent(t testing.TB, w file.Workdirs) *agent {
	t.Helper()
	a := &agent{TB: t, dir: filepath.Join(t.TempDir(), "made", "workdir"), turn: "threads/main:m1", all: file.New(w)}
	a.config = &registrypb.TurnConfig{Workdir: a.dir, ToolLayers: []*registrypb.ToolLayer{{Name: "agent"}}}
	tools, err := toolset.New(a.all...)
	ok(t, err)
	a.set = tools.Set(a.config)
	ok(t, os.MkdirAll(a.dir, 0o700))
	return a
}

// call is a call with a new key.
func (a *agent) call(name string, arguments map[string]any) toolset.Call {
	a.Helper()
	args, err := json.Marshal(arguments)
	ok(a, err)
	a.calls++
	return toolset.Call{
		Key: fmt.Sprintf("%s:tool:1:%d", a.turn, a.calls), Name: name, Args: args,
		Place: toolset.Place{AgentID: "a1", Config: a.config, Trusted: func(context.Context) error { return nil }},
	}
}

type args = map[string]any

// does makes a call that has to succeed with a text that contains want.
func (a *agent) does(name string, arguments args, want string) string {
	a.Helper()
	r := a.set.Run(a.Context(), a.call(name, arguments))
	if r.IsError || !strings.Contains(r.Text, want) {
		a.Errorf("%s %.200v: %v %.600q, want %q", name, arguments, r.IsError, r.Text, want)
	}
	return r.Text
}

// refuses makes a call that has to fail with a text that contains want.
func (a *agent) refuses(name string, arguments args, want string) {
	a.Helper()
	r := a.set.Run(a.Context(), a.call(name, arguments))
	if !r.IsError || !strings.Contains(r.Text, want) || !utf8.ValidString(r.Text) || len(r.Text) > 8192 {
		a.Errorf("%s %.200v: %v %.600q, want the error %q", name, arguments, r.IsError, r.Text, want)
	}
}

func (a *agent) put(name, content string) {
	a.Helper()
	ok(a, os.MkdirAll(filepath.Dir(filepath.Join(a.dir, name)), 0o700))
	ok(a, os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o600))
}

func (a *agent) has(name, want string) {
	a.Helper()
	if b, err := os.ReadFile(filepath.Join(a.dir, name)); err != nil || string(b) != want {
		a.Errorf("%s is %.300q (%v), want %.300q", name, b, err, want)
	}
}

func (a *agent) hasNot(name string) {
	a.Helper()
	if _, err := os.Lstat(filepath.Join(a.dir, name)); !errors.Is(err, fs.ErrNotExist) {
		a.Errorf("%s is there (%v)", name, err)
	}
}

// Every tool passes the suite.
func TestSuite(t *testing.T) {
	long := strings.Repeat("x", 5<<10)
	cases := map[string]toolsettest.Cases{
		"read":      {Good: []string{`{"path":"a.txt"}`, `{"path":"./sub/../a.txt","offset":2,"limit":1}`}, Bad: []string{`{}`, `{"path":""}`, `{"path":"none"}`, `{"path":"a.txt","offset":0}`, `{"path":"../x"}`, `{"path":"` + long + `"}`}},
		"send_file": {Good: []string{`{"path":"a.txt"}`, `{"path":"a.txt","caption":"the file"}`}, Bad: []string{`{}`, `{"path":"none"}`, `{"path":"sub"}`, `{"path":"../x"}`, `{"path":"a.txt","caption":"` + strings.Repeat("x", 1001) + `"}`}},
		"write":     {Good: []string{`{"path":"new/w.txt","content":"x"}`, `{"path":"new/w.txt","content":""}`}, Bad: []string{`{}`, `{"path":"x"}`, `{"path":"sub","content":"x"}`, `{"path":"a.txt/b","content":"x"}`, `{"path":"/etc/x","content":""}`}},
		// What it writes has the text to replace again, so that it can be repeated.
		"edit":        {Good: []string{`{"path":"e.txt","old_text":"e","new_text":"ex"}`}, Bad: []string{`{}`, `{"path":"e.txt","old_text":"","new_text":"x"}`, `{"path":"e.txt","old_text":"zz","new_text":"x"}`, `{"path":"e.txt","old_text":"e","new_text":"e"}`}},
		"apply_patch": {Good: []string{`{"patch":"*** Begin Patch\n*** Update File: p.txt\n@@\n-p\n+q\n+p\n*** End Patch"}`}, Bad: []string{`{}`, `{"patch":""}`, `{"patch":"*** Begin Patch\n*** End Patch"}`, `{"patch":"*** Begin Patch\n*** Delete File: none\n*** End Patch"}`}},
		"grep":        {Good: []string{`{"pattern":"one"}`, `{"pattern":"nothing at all","path":"a.txt","glob":"*.txt"}`}, Bad: []string{`{}`, `{"pattern":"("}`, `{"pattern":""}`, `{"pattern":"x","path":"none"}`, `{"pattern":"x","glob":"["}`}},
		"find":        {Good: []string{`{"pattern":"*.txt"}`, `{"pattern":"**/none","path":"sub"}`}, Bad: []string{`{}`, `{"pattern":"{"}`, `{"pattern":"x","path":"a.txt"}`, `{"pattern":""}`}},
		"ls":          {Good: []string{`{}`, `{"path":"sub"}`}, Bad: []string{`{"path":""}`, `{"path":"a.txt"}`, `{"path":7}`, `{"path":"none"}`}},
	}
	for _, tool := range file.New(nil) {
		name := tool.Spec().Name
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, nil)
			a.put("a.txt", "one\ntwo\n")
			a.put("e.txt", "e\n")
			a.put("p.txt", "p\n")
			ok(t, os.Mkdir(filepath.Join(a.dir, "sub"), 0o700))
			c := cases[name]
			c.Config = a.config
			toolsettest.Run(t, tool, c)
			class := toolset.Read
			if slices.Contains([]string{"write", "edit", "apply_patch", "send_file"}, name) {
				class = toolset.Idempotent
			}
			if got := tool.Class(toolset.Call{}); got != class {
				t.Errorf("class %v", got)
			}
		})
	}
}

// S3-44: read gives lines and their total; what is missing is an error.
func TestRead(t *testing.T) {
	a := newAgent(t, nil)
	var many strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&many, "line %d\n", n+1)
	}
	a.put("many", many.String())
	a.put("wide", strings.Repeat(strings.Repeat("x", 999)+"\n", 100))
	a.put("long", strings.Repeat("é", 40<<10)+"\nend\n")
	a.put("empty", "")
	a.put("open", "a\nb")
	a.put("crlf", "a\r\nb\r\n")
	a.put("mixed", "a\r\nb\n")
	a.put("marked", "\xef\xbb\xbfa\n")
	a.put("le", "\xff\xfea\x00\n\x00\x3d\xd8\x00\xde")
	a.put("be", "\xfe\xff\x00a\x00\n")
	a.put("lone", "\xff\xfe\x3d\xd8a\x00\n\x00")
	a.put("invalid", "a\xff\xfeb\xffc\n")
	a.put("escapes", "\x1b[31mred\x1b[0m\n")
	a.put("binary", "\x7fELF\x00\x01")
	a.put("p.png", "\x89PNG\r\n\x1a\n\x00\x00")
	a.put("sub/x", "x")
	for arguments, want := range map[string]string{
		`{"path":"many"}`: "line 1\nline 2\n…\nline 2000\n[lines 1-2000 of 5000, read on with offset 2001]",
		`{"path":"many","offset":4999,"limit":10000}`: "line 4999\nline 5000\n[lines 4999-5000 of 5000]",
		`{"path":"many","offset":3,"limit":1}`:        "line 3\n[lines 3-3 of 5000, read on with offset 4]",
		`{"path":"wide"}`:                             "x…x\n[lines 1-51 of 100, read on with offset 52]",
		`{"path":"long"}`:                             "é…é\n[lines 1-1 of 2, read on with offset 2; line 1 is longer than 50 KiB: use a command to see the rest of it]",
		`{"path":"long","offset":2}`:                  "end\n[lines 2-2 of 2]",
		`{"path":"empty"}`:                            "[the file is empty]",
		`{"path":"open"}`:                             "a\nb\n[lines 1-2 of 2; no line break at the end]",
		`{"path":"crlf"}`:                             "a\nb\n[lines 1-2 of 2; lines end in CRLF]",
		`{"path":"mixed"}`:                            "a\nb\n[lines 1-2 of 2; some lines end in CRLF]",
		`{"path":"marked"}`:                           "a\n[lines 1-1 of 1; the file begins with a byte order mark]",
		`{"path":"le"}`:                               "a\n\U0001F600\n[lines 1-2 of 2; no line break at the end; the file is UTF-16]",
		`{"path":"be"}`:                               "a\n[lines 1-1 of 1; the file is UTF-16]",
		`{"path":"lone"}`:                             "\uFFFDa\n[lines 1-1 of 1; the file is UTF-16; 1 place could not be decoded and became U+FFFD]",
		`{"path":"invalid"}`:                          "a\uFFFDb\uFFFDc\n[lines 1-1 of 1; bytes that are not UTF-8 were replaced by U+FFFD in 2 places]",
		`{"path":"escapes"}`:                          "red\n[lines 1-1 of 1; control characters were left out]",
		`{"path":"p.png"}`:                            "p.png is an image of type image/png, 10 bytes",
	} {
		var in args
		ok(t, json.Unmarshal([]byte(arguments), &in))
		begin, end, cut := strings.Cut(want, "…")
		got := a.does("read", in, "")
		if cut && !(strings.HasPrefix(got, begin) && strings.HasSuffix(got, end)) || !cut && got != want || len(got) > 52<<10 {
			t.Errorf("%s: %d bytes, %.100q ... %q", arguments, len(got), got, got[max(0, len(got)-200):])
		}
	}
	a.does("read", args{"path": filepath.Join(a.dir, "open")}, "a\nb\n") // an absolute path inside
	a.refuses("read", args{"path": "none"}, "none does not exist: list the directory with ls")
	a.refuses("read", args{"path": "sub"}, "sub is a directory: list it with ls")
	a.refuses("read", args{"path": "binary"}, "binary is a binary file of 6 bytes")
	a.refuses("read", args{"path": "open", "offset": 3}, "open has 2 lines, and offset 3 is behind the last one")
	a.refuses("read", args{"path": "open", "limit": -1}, "1 or more")
}

// S3-45: write makes directories, replaces a file at once and keeps its mode.
func TestWrite(t *testing.T) {
	a := newAgent(t, nil)
	ok(t, os.RemoveAll(a.dir))
	a.does("write", args{"path": "a/b/c.txt", "content": "one\n"}, "wrote a/b/c.txt (new file, 4 bytes)")
	a.has("a/b/c.txt", "one\n")
	if info, err := os.Stat(a.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the working directory: %v %v", info, err)
	}
	run := filepath.Join(a.dir, "a/b/c.txt")
	ok(t, os.Chmod(run, 0o750))
	before, err := os.Stat(run)
	ok(t, err)
	a.does("write", args{"path": "a/b/c.txt", "content": "two"}, "wrote a/b/c.txt (replaced, 3 bytes)")
	a.has("a/b/c.txt", "two")
	after, err := os.Stat(run)
	if err != nil || after.Mode() != before.Mode() || os.SameFile(before, after) {
		t.Errorf("%v, was %v, and is the same file: %v (%v)", after.Mode(), before.Mode(), os.SameFile(before, after), err)
	}
	a.does("write", args{"path": "a/b/c.txt", "content": "two"}, "has this content already")
	a.refuses("write", args{"path": "a/b", "content": "x"}, "a/b is a directory")
	a.refuses("write", args{"path": "new/", "content": "x"}, "names a directory")
	a.refuses("write", args{"path": "a/b/c.txt/d", "content": "x"}, "a/b/c.txt is a file and not a directory")
	ok(t, os.Symlink("c.txt", filepath.Join(a.dir, "a/b/link")))
	a.does("write", args{"path": "a/b/link", "content": "by link"}, "wrote a/b/c.txt")
	a.has("a/b/c.txt", "by link")
	if to, err := os.Readlink(filepath.Join(a.dir, "a/b/link")); err != nil || to != "c.txt" {
		t.Errorf("the link: %s %v", to, err)
	}
}

// A program in the sandbox is the owner of the working directory, and can change what a
// runner that is root has made there.
func TestOwner(t *testing.T) {
	need.Root(t)
	a := newAgent(t, nil)
	const user, other = 12345, 12346
	ok(t, os.Lchown(a.dir, user, user))
	a.put("old", "x")
	ok(t, os.Lchown(filepath.Join(a.dir, "old"), other, other))
	a.does("write", args{"path": "old", "content": "y"}, "replaced")
	a.does("write", args{"path": "made/new", "content": "y"}, "new file")
	for name, want := range map[string]uint32{"old": other, "made": user, "made/new": user, ".output": user} {
		info, err := os.Lstat(filepath.Join(a.dir, name))
		ok(t, err)
		if st, _ := info.Sys().(*syscall.Stat_t); st == nil || st.Uid != want || st.Gid != want {
			t.Errorf("%s belongs to %+v, want %d", name, st, want)
		}
	}
}

// S4-65: edit replaces a text that occurs once, and leaves the rest of the file as it is.
func TestEdit(t *testing.T) {
	a := newAgent(t, nil)
	for name, c := range map[string]struct{ before, old, new, after, want string }{
		"once":     {"a\nb\nc\n", "b", "x\ny", "a\nx\ny\nc\n", "edited f: replaced 1 occurrence, in line 2"},
		"lines":    {"a\nb\nc\n", "a\nb\n", "", "c\n", "in line 1"},
		"crlf":     {"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n", "in line 1"},
		"crlf one": {"a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n", "in line 2"},
		"mark":     {"\xef\xbb\xbfa\n", "a", "b", "\xef\xbb\xbfb\n", "in line 1"},
		"utf-16":   {"\xff\xfea\x00\r\x00\n\x00", "a\n", "é\n\U0001F600\n", "\xff\xfe\xe9\x00\r\x00\n\x00\x3d\xd8\x00\xde\r\x00\n\x00", "in line 1"},
		"utf-16be": {"\xfe\xff\x00a", "a", "é", "\xfe\xff\x00\xe9", "in line 1"},
		"open":     {"a\nb", "b", "c", "a\nc", "in line 2"},
		"mixed":    {"a\nb\nc\r\nd\r\n", "c\nd", "c\nx\nd", "a\nb\nc\r\nx\r\nd\r\n", "in line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			a := *a
			a.TB, a.turn = t, name
			a.put("f", c.before)
			a.does("edit", args{"path": "f", "old_text": c.old, "new_text": c.new}, c.want)
			a.has("f", c.after)
		})
	}
	a.put("f", "x\nx y\nz\nxx\n")
	a.refuses("edit", args{"path": "f", "old_text": "x", "new_text": "n"}, "old_text occurs 4 times in f, in lines 1, 2, 4, 4, nothing was changed")
	a.refuses("edit", args{"path": "f", "old_text": "q", "new_text": "n"}, "old_text does not occur in f, nothing was changed")
	a.has("f", "x\nx y\nz\nxx\n")
	a.does("edit", args{"path": "f", "old_text": "x", "new_text": "xy", "replace_all": true}, "replaced 4 occurrences, in lines 1, 2, 4, 4")
	a.has("f", "xy\nxy y\nz\nxyxy\n")
	a.put("f", "aaa")
	a.refuses("edit", args{"path": "f", "old_text": "aa", "new_text": "b"}, "occurs 2 times") // which overlap
	a.put("f", "a\xffb")
	a.refuses("edit", args{"path": "f", "old_text": "a", "new_text": "b"}, "f has bytes that are no text in its encoding, in 1 place")
	a.put("f", "\xff\xfea\x00b")
	a.refuses("edit", args{"path": "f", "old_text": "a", "new_text": "b"}, "no text in its encoding")
	a.has("f", "\xff\xfea\x00b")
	a.put("f", "a\x00b")
	a.refuses("edit", args{"path": "f", "old_text": "a", "new_text": "b"}, "f is a binary file")
	a.put("f", strings.Repeat("a", 1<<20))
	a.refuses("edit", args{"path": "f", "old_text": "a", "new_text": strings.Repeat("b", 1<<10), "replace_all": true}, "would become larger")
	a.refuses("edit", args{"path": "f", "old_text": strings.Repeat("a", 100<<10), "new_text": "b"}, "occurs at least 1000 times")
	a.refuses("edit", args{"path": "none", "old_text": "a", "new_text": "b"}, "none does not exist")
}

func patchOf(lines ...string) args {
	return args{"patch": "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"}
}

// S4-65: a patch adds, updates, deletes and moves.
func TestPatch(t *testing.T) {
	a := newAgent(t, nil)
	a.put("u", "one\ntwo\nthree\nfour\n")
	a.put("d", "d\n")
	a.put("m", "m\nn\n")
	ok(t, os.Chmod(filepath.Join(a.dir, "m"), 0o700))
	a.put("as-is", "\x00binary")
	got := a.does("apply_patch", patchOf(
		"*** Add File: new/a", "+a", "+", "+b", "",
		"*** Update File: u", "@@", " one", "-two", "+2", "@@ three", "+3.5", "",
		"*** Delete File: d",
		"*** Update File: m", "*** Move to: moved/m", "@@", "-n", "+N",
		"*** Update File: as-is", "*** Move to: moved/as-is",
	), "patched 5 files\n")
	if got != "patched 5 files\nadded new/a\nupdated u\ndeleted d\nmoved m to moved/m\nmoved as-is to moved/as-is" {
		t.Errorf("%q", got)
	}
	a.has("new/a", "a\n\nb\n")
	a.has("u", "one\n2\nthree\n3.5\nfour\n")
	a.hasNot("d")
	a.hasNot("m")
	a.hasNot("as-is")
	a.has("moved/m", "m\nN\n")
	a.has("moved/as-is", "\x00binary")
	if info, err := os.Stat(filepath.Join(a.dir, "moved/m")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	for name, c := range map[string]struct {
		before string
		patch  []string
		after  string
	}{
		"exact before blanks": {"x \nx\n", []string{"@@", "-x", "+y"}, "x \ny\n"},
		"trailing blanks":     {"a\t \nb\n", []string{"@@", " a", "-b  ", "+c"}, "a\t \nc\n"},
		"crlf":                {"a\r\nb\r\n", []string{"@@", " a", "-b", "+c", "+d"}, "a\r\nc\r\nd\r\n"},
		"mark":                {"\xef\xbb\xbfa\n", []string{"-a", "+b"}, "\xef\xbb\xbfb\n"},
		"no line break":       {"a\nb", []string{"@@", " b", "+c"}, "a\nb\nc"},
		"append":              {"a\n", []string{"@@", "+b"}, "a\nb\n"},
		"to an empty file":    {"", []string{"@@", "+b"}, "b\n"},
		"anchors":             {"f\nx\ng\nx\nh\nx\n", []string{"@@ g", "@@ h", "-x", "+y"}, "f\nx\ng\nx\nh\ny\n"},
		"unified":             {"a\nb\n", []string{"@@ -1,2 +1,2 @@", " a", "-b", "+c"}, "a\nc\n"},
		"end of file":         {"x\ny\nx\n", []string{"@@", "-x", "+z", "*** End of File"}, "x\ny\nz\n"},
		"in order":            {"x\ny\nx\n", []string{"@@", " y", "@@", "-x", "+z"}, "x\ny\nz\n"},
		"empty line":          {"a\n\nb\n", []string{"@@", " a", "", "-b", "+c", ""}, "a\n\nc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a := *a
			a.TB, a.turn = t, name
			a.put("f", c.before)
			a.does("apply_patch", patchOf(append([]string{"*** Update File: f"}, c.patch...)...), "patched 1 file\nupdated f")
			a.has("f", c.after)
		})
	}
}

// S4-65: a patch that does not fit in one place changes no file.
func TestPatchRefused(t *testing.T) {
	good := []string{"*** Update File: one", "@@", "-1", "+x", "*** Add File: new/file", "+x", "*** Delete File: three"}
	for want, bad := range map[string][]string{
		"hunk 2 of two (line 13 of the patch) does not fit: its lines do not occur there behind line 1": {"*** Update File: two", "@@", "-2", "+x", "@@", " nothing", "-2", "+x"},
		"hunk 1 of two (line 10 of the patch) does not fit":                                             {"*** Update File: two", "@@ no such line", "-2", "+x"},
		"one occurs twice in the patch":                                                                 {"*** Update File: link", "-1", "+y"},
		"two exists already":                                                                            {"*** Add File: two", "+x"},
		"two exists already: ":                                                                          {"*** Update File: four", "*** Move to: two"},
		"new/file as a file and as a directory":                                                         {"*** Add File: new/file/below", "+x"},
		"none does not exist":                                                                           {"*** Update File: none", "-1", "+x"},
		"../out is outside":                                                                             {"*** Add File: ../out", "+x"},
		"the update of two has no lines":                                                                {"*** Update File: two"},
		"the update of two changes nothing":                                                             {"*** Update File: two", "@@", " 2"},
		"line 10 of the patch, *x, does not belong there":                                               {"*** Update File: two", "*x"},
		"line 11 of the patch, +y, does not belong there":                                               {"*** Add File: z", "", "+y"},
		"line 10 of the patch, +y, does not belong there: a line of a new file be":                      {"*** Delete File: two", "+y"},
		"dir is a directory":                                                                            {"*** Delete File: dir"},
	} {
		a := newAgent(t, nil)
		a.put("one", "1\n")
		a.put("two", "2\n")
		a.put("three", "3\n")
		a.put("four", "4\n")
		a.put("dir/x", "")
		ok(t, os.Symlink("one", filepath.Join(a.dir, "link")))
		a.refuses("apply_patch", patchOf(append(slices.Clone(good), bad...)...), want)
		a.has("one", "1\n")
		a.has("two", "2\n")
		a.has("three", "3\n")
		a.has("four", "4\n")
		a.hasNot("new")
		a.hasNot(".output")
	}
	a := newAgent(t, nil)
	a.refuses("apply_patch", args{"patch": "--- a\n+++ b\n"}, "does not begin with *** Begin Patch")
	a.refuses("apply_patch", args{"patch": "*** Begin Patch\n*** Delete File: x"}, "does not end with *** End Patch")
	a.refuses("apply_patch", args{"patch": "*** Begin Patch\n*** End Patch"}, "changes no file")
}

// A file that the turn has read and another writer has changed since is not overwritten.
func TestChangedSinceRead(t *testing.T) {
	a := newAgent(t, nil)
	const why = "f was changed since you read it"
	a.put("f", "one\n")
	a.does("read", args{"path": "./f", "limit": 1}, "one")
	a.put("f", "other\n")
	a.refuses("write", args{"path": "f", "content": "x"}, why)
	a.refuses("edit", args{"path": "f", "old_text": "other", "new_text": "x"}, why)
	a.refuses("apply_patch", patchOf("*** Update File: f", "-other", "+x"), why)
	a.refuses("apply_patch", patchOf("*** Delete File: f"), why)
	a.has("f", "other\n")
	a.turn = "threads/main:m2" // another turn has not read it
	a.does("edit", args{"path": "f", "old_text": "other", "new_text": "second"}, "edited")
	a.turn = "threads/main:m1"
	a.does("read", args{"path": "f"}, "second")
	a.does("edit", args{"path": "f", "old_text": "second", "new_text": "third"}, "edited")
	a.does("edit", args{"path": "f", "old_text": "third", "new_text": "fourth"}, "edited") // its own change
	ok(t, os.Remove(filepath.Join(a.dir, "f")))
	a.does("write", args{"path": "f", "content": "new"}, "new file") // there is nothing to lose
	for n := range 300 {                                             // turns are forgotten, oldest first
		a.turn = fmt.Sprint("threads/main:x", n)
		a.does("read", args{"path": "f"}, "new")
	}
	a.put("f", "changed\n")
	a.refuses("write", args{"path": "f", "content": "x"}, why)
	a.turn = "threads/main:m1"
	a.does("write", args{"path": "f", "content": "x"}, "replaced")
}

// S4-65: what is outside of the working directory is neither read nor changed, whatever
// leads there, and nothing waits for what is no regular file.
func TestOutside(t *testing.T) {
	a := newAgent(t, nil)
	out := filepath.Join(filepath.Dir(a.dir), "secret")
	ok(t, os.WriteFile(out, []byte("secret\n"), 0o600))
	ok(t, os.Mkdir(filepath.Join(filepath.Dir(a.dir), "workdir2"), 0o700))
	at := func(name string) string { return filepath.Join(a.dir, name) }
	for name, target := range map[string]string{
		"zero": "/dev/zero", "up": "../secret", "abs": out, "parent": "..", "loop": "loop", "ping": "pong", "pong": "ping",
		"self": "/proc/self/environ", "inside": at("real"), "chain": "up", "dot": "sub/../../secret",
	} {
		ok(t, os.Symlink(target, at(name)))
	}
	ok(t, os.Mkdir(at("sub"), 0o700))
	a.put("real", "real\n")
	ok(t, syscall.Mkfifo(at("fifo"), 0o600))
	ok(t, os.Link(out, at("hard")))
	for path, why := range map[string]string{
		"../secret": "outside", "sub/../../secret": "outside", out: "outside", "/etc/passwd": "outside", a.dir + "2/x": "outside",
		"zero": "outside", "up": "outside", "abs": "outside", "parent/secret": "outside", "self": "outside", "chain": "outside", "dot": "outside",
		"loop": "40 links", "ping": "40 links", "a\x00b": "NUL", strings.Repeat("x/", 2600): "the system allows 4096",
		strings.Repeat("x", 256): "too long", strings.Repeat("sub/../", 300) + "fifo": "more than 256 directories",
		strings.Repeat("sub/../", 20) + strings.Repeat("./", 1000) + "fifo": "a pipe", "fifo": "a pipe", "hard": "a second name", "none/../real": "does not exist", "": "empty", strings.Repeat("d/", 400) + "../x": "does not exist",
	} {
		a.refuses("read", args{"path": path}, why)
		a.refuses("edit", args{"path": path, "old_text": "secret", "new_text": "x"}, why)
		if why != "does not exist" {
			a.refuses("write", args{"path": path, "content": "x"}, why)
			a.refuses("grep", args{"pattern": "x", "path": path}, why)
		}
		if why == "outside" {
			a.refuses("apply_patch", patchOf("*** Delete File: "+path), why)
			a.refuses("ls", args{"path": path}, why)
			a.refuses("find", args{"pattern": "*", "path": path}, why)
		}
	}
	a.does("read", args{"path": "inside"}, "real\n") // an absolute link that stays inside
	if got := a.does("grep", args{"pattern": "secret|root"}, "[nothing matches; left out because they cannot be read: 1]"); strings.Contains(got, "secret") {
		t.Error(got)
	}
	a.does("ls", args{}, "fifo  a pipe\n")
	b, err := os.ReadFile(out)
	if err != nil || string(b) != "secret\n" {
		t.Errorf("outside: %q %v", b, err)
	}
}

func TestSearch(t *testing.T) {
	a := newAgent(t, nil)
	a.put("a.go", "package a\n\nfunc A() {}\r\n// "+strings.Repeat("x", 1000)+" needle "+strings.Repeat("y", 1000)+"\n")
	a.put("src/b.go", "package b\n")
	a.put("src/deep/er/c_test.go", "package c // \x1b[1m\xff\n")
	a.put("src/utf16.txt", "\xff\xfep\x00a\x00c\x00k\x00")
	a.put("bin", "package\x00")
	a.put(".git/config", "package\n")
	a.put("node_modules/m/m.go", "package m\n")
	a.put(".output/log", "package log\n")
	a.put("strange\nname", "package s")
	for _, c := range []struct {
		name string
		in   args
		want string
	}{
		{"grep", args{"pattern": "^pack"}, "a.go:1: package a\n\"strange\\nname\":1: package s\nsrc/b.go:1: package b\nsrc/utf16.txt:1: pack\nsrc/deep/er/c_test.go:1: package c // \uFFFD"},
		{"grep", args{"pattern": "package", "glob": "*_test.go"}, "src/deep/er/c_test.go:1: package c // \uFFFD"},
		{"grep", args{"pattern": "package", "path": "src", "glob": "deep/**"}, "src/deep/er/c_test.go:1: package c // \uFFFD"},
		{"grep", args{"pattern": "^$"}, "a.go:2: "},
		{"grep", args{"pattern": `\}$`, "path": "a.go"}, "a.go:3: func A() {}"},
		{"grep", args{"pattern": "(?i)LOG", "path": ".output"}, ".output/log:1: package log"},
		{"grep", args{"pattern": "none"}, "[nothing matches]"},
		{"find", args{"pattern": "*.go"}, "a.go\nsrc/b.go\nsrc/deep/er/c_test.go"},
		{"find", args{"pattern": "src/**/*.go"}, "src/b.go\nsrc/deep/er/c_test.go"},
		{"find", args{"pattern": "**/er"}, "src/deep/er/"},
		{"find", args{"pattern": "{b,c_*}.go", "path": "src"}, "src/b.go\nsrc/deep/er/c_test.go"},
		{"find", args{"pattern": "deep/**", "path": "src"}, "src/deep/\nsrc/deep/er/\nsrc/deep/er/c_test.go"},
		{"find", args{"pattern": "m.go", "path": "node_modules"}, "node_modules/m/m.go"},
		{"find", args{"pattern": "nothing"}, "[nothing has such a name]"},
		{"ls", args{}, "a.go  2036\nbin  8\nsrc/\n\"strange\\nname\"  9\n[.git is left out; .output is left out; node_modules is left out]"},
		{"ls", args{"path": ".git"}, "config  8"},
	} {
		if got := a.does(c.name, c.in, ""); got != c.want {
			t.Errorf("%s %v:\n%q, want\n%q", c.name, c.in, got, c.want)
		}
	}
	long := a.does("grep", args{"pattern": "needle"}, "a.go:4: ...xxx")
	if !strings.Contains(long, " needle ") || len(long) > 450 {
		t.Errorf("%q", long)
	}
	a.refuses("find", args{"pattern": strings.Repeat("{a,b}", 5)}, "more than 4 groups")
	a.refuses("find", args{"pattern": "[a"}, "is not a glob")
	a.refuses("grep", args{"pattern": "(a"}, "pattern cannot be used")
	a.refuses("grep", args{"pattern": "([ab]{1000}){900}"}, "pattern cannot be used")
	a.refuses("grep", args{"pattern": strings.Repeat("[ab]{1000}", 6)}, "repeats too much")
	a.put("marked/mark", "\xef\xbb\xbfusing x\n")
	a.does("grep", args{"pattern": "^using", "path": "marked"}, "marked/mark:1: using x") // the mark is no character of the line
	a.put("large/utf16", "\xff\xfe"+strings.Repeat("a\x00\n\x00", 4<<20)+"e\x00")
	a.does("grep", args{"pattern": "e", "path": "large"}, "[nothing matches; left out because they cannot be read: 1]")
	for n := range 1200 {
		a.put(fmt.Sprintf("many/f%04d", n), "hit\nhit\n")
	}
	if got := a.does("grep", args{"pattern": "hit"}, "[there are more than these 100: "); strings.Count(got, "\n") != 100 {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	a.does("find", args{"pattern": "f*"}, "[there are more than these 1000: ")
	a.does("ls", args{"path": "many"}, "f0999  8\n[200 more entries are left out: use find]")
}

// Input that is made to take long or much memory does not.
func TestTraps(t *testing.T) {
	a := newAgent(t, nil)
	big := filepath.Join(a.dir, "big")
	ok(t, os.WriteFile(big, []byte("text\n"), 0o600))
	ok(t, os.Truncate(big, 1<<30))
	a.refuses("read", args{"path": "big"}, "binary file of 1073741824 bytes")
	a.refuses("edit", args{"path": "big", "old_text": "text", "new_text": "x"}, "larger than 16 MiB")
	a.refuses("write", args{"path": "big", "content": "x"}, "larger than 16 MiB")
	a.refuses("apply_patch", patchOf("*** Delete File: big"), "larger than 16 MiB")
	a.does("grep", args{"pattern": "x"}, "nothing matches")
	ok(t, syscall.Mkfifo(filepath.Join(a.dir, ".output"), 0o600))
	a.refuses("write", args{"path": "new", "content": "x"}, "no file was changed, repair .output with a command")
	ok(t, os.Remove(filepath.Join(a.dir, ".output")))
	ok(t, os.Truncate(big, 1<<30+1))
	a.refuses("read", args{"path": "big"}, "more than 1024 MiB are not read")
	ok(t, os.Remove(big))

	// A text of many lines, whose beginning is text and whose end is a hole of 1 GiB.
	ok(t, os.WriteFile(big, []byte(strings.Repeat("text\n", 4000)), 0o600))
	ok(t, os.Truncate(big, 1<<30))
	a.does("read", args{"path": "big", "offset": 4000}, "text\n[lines 4000-4000 of 4001, read on with offset 4001]")
	ok(t, os.Remove(big))

	// 10,000 hunks.
	var text, want strings.Builder
	lines := []string{"*** Update File: hunks"}
	for n := range 10_000 {
		fmt.Fprintf(&text, "%d\n-\n", n)
		fmt.Fprintf(&want, "%d\n+\n", n)
		lines = append(lines, "@@", fmt.Sprintf(" %d", n), "--", "++")
	}
	a.put("hunks", text.String())
	a.does("apply_patch", patchOf(lines...), "patched 1 file")
	a.has("hunks", want.String())

	// Hunks that nearly fit everywhere.
	a.put("same", strings.Repeat("x\n", 1<<20))
	lines = []string{"*** Update File: same", "@@"}
	for range 20_000 {
		lines = append(lines, " x")
	}
	a.refuses("apply_patch", patchOf(append(lines, "-y", "+z")...), "too many comparisons")

	// An expression for which a search that goes back would never finish.
	a.put("line", strings.Repeat("a", 1<<20-2)+"!\n")
	a.does("grep", args{"pattern": "(a+)+$"}, "nothing matches")
	a.does("find", args{"pattern": strings.Repeat("**/a*", 100)}, "nothing has such a name")
	a.put(strings.Repeat("a/", 200)+"b", "")
	a.does("find", args{"pattern": strings.Repeat("**/a/", 100) + "c"}, "nothing has such a name")
	a.put(strings.Repeat("a", 250), "")
	a.does("find", args{"pattern": strings.Repeat("{a,aa,aaa,aaaa,aaaaa}", 4) + strings.Repeat("*a", 100) + "c"}, "nothing has such a name")
}

// moves is a registry that keeps working directories.
type moves struct {
	calls         []string
	restore, save error
}

func (m *moves) Restore(context.Context, toolset.Place) error {
	m.calls = append(m.calls, "restore")
	return m.restore
}

func (m *moves) Save(context.Context, toolset.Place) error {
	m.calls = append(m.calls, "save")
	return m.save
}

// A working directory that moves is brought before a call and kept after a change.
func TestWorkdirsThatMove(t *testing.T) {
	m := &moves{}
	a := newAgent(t, m)
	a.does("write", args{"path": "f", "content": "x"}, "wrote")
	if len(m.calls) > 0 {
		t.Errorf("without the setting: %v", m.calls)
	}
	a.config.WorkdirSync = true
	a.does("read", args{"path": "f"}, "x")
	a.does("write", args{"path": "f", "content": "y"}, "wrote")
	if got := strings.Join(m.calls, " "); got != "restore restore save" {
		t.Error(got)
	}
	m.save = errors.New("they are on this machine alone")
	a.does("write", args{"path": "f", "content": "z"}, "bytes)\n[they are on this machine alone]")
	m.restore = errors.New("the registry is away")
	a.refuses("write", args{"path": "f", "content": "w"}, "nothing was done: the registry is away")
	a.has("f", "z")
}

func BenchmarkRead(b *testing.B) {
	a := newAgent(b, nil)
	a.put("f", strings.Repeat(strings.Repeat("x", 63)+"\n", 1024))
	c := a.call("read", args{"path": "f"})
	b.SetBytes(64 << 10)
	for b.Loop() {
		if r := a.set.Run(b.Context(), c); r.IsError {
			b.Fatal(r.Text)
		}
	}
}

func BenchmarkGrep(b *testing.B) {
	a := newAgent(b, nil)
	content := strings.Repeat("\tif err := f(ctx, name); err != nil {\n\t\treturn fmt.Errorf(\"open: %w\", err)\n\t}\n", 190)
	for n := range 2000 {
		a.put(fmt.Sprintf("d%d/f%d.go", n/100, n), content)
	}
	c := a.call("grep", args{"pattern": `func \w+\(needle`})
	b.SetBytes(int64(2000 * len(content)))
	for b.Loop() {
		if r := a.set.Run(b.Context(), c); r.IsError || !strings.Contains(r.Text, "nothing matches") {
			b.Fatal(r.Text)
		}
	}
}

// With a container the model may name files by their paths in it, also behind links that commands have made there. A
// path outside stays refused.
func TestPathsOfContainer(t *testing.T) {
	a := newAgent(t, nil)
	a.config.Sandbox = &registrypb.Sandbox{Docker: &registrypb.DockerSandbox{Workdir: "/workspace"}}
	a.does("write", args{"path": "/workspace/sub/a.txt", "content": "one\n"}, "")
	b, err := os.ReadFile(filepath.Join(a.dir, "sub", "a.txt"))
	ok(t, err)
	ok(t, os.Symlink("/workspace/sub/a.txt", filepath.Join(a.dir, "link")))
	if string(b) != "one\n" {
		t.Errorf("file %q", b)
	}
	for _, path := range []string{"/workspace/sub/a.txt", "/workspace/../workspace/sub/a.txt", "sub/a.txt", filepath.Join(a.dir, "sub/a.txt"), "link"} {
		a.does("read", args{"path": path}, "one")
	}
	for _, path := range []string{"/workspace/../etc/passwd", "/workspacex/sub/a.txt", "/etc/passwd"} {
		if r := a.set.Run(t.Context(), a.call("read", args{"path": path})); !r.IsError || !strings.Contains(r.Text, "outside") {
			t.Errorf("%s: %s", path, r.Text)
		}
	}
}

// S3-52: a file that is sent has its content, its name and its type; one that is too large or empty is not sent.
func TestSendFile(t *testing.T) {
	a := newAgent(t, nil)
	a.put("out/report.csv", "a,b\n")
	a.put("picture", "\x89PNG\r\n\x1a\n")
	a.put("empty", "")
	for _, c := range []struct{ path, mime, content string }{{"out/report.csv", "text/csv", "a,b\n"}, {"picture", "image/png", "\x89PNG\r\n\x1a\n"}} {
		r := a.set.Run(t.Context(), a.call("send_file", args{"path": c.path, "caption": " see "}))
		if len(r.Messages) != 1 || r.Messages[0].Text != "see" || r.Messages[0].File == nil {
			t.Fatalf("%+v", r)
		}
		if f := r.Messages[0].File; f.Name != filepath.Base(c.path) || f.MIME != c.mime || string(f.Data) != c.content {
			t.Errorf("%+v", f)
		}
	}
	a.refuses("send_file", args{"path": "empty"}, "empty is empty: nothing was sent")
	ok(t, os.Truncate(filepath.Join(a.dir, "empty"), 20<<20+1))
	a.refuses("send_file", args{"path": "empty"}, "at most 20 MiB can be sent")
}
