//go:build proof

package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool"
	"github.com/theclaw/agents/internal/filetree"
)

// Values that are of the wrong form for most kinds of argument. They are passed in this
// process: an operating system passes neither NUL nor 1 MiB in one argument.
var (
	wrongForm = []badValue{{"of another type", "x y"}, {"negative", "-1"}, {"unknown form", "No/Such"}}
	wrongText = []badValue{{"NUL", "1\x00"}, {"invalid UTF-8", "1\xff"}}
	newline   = badValue{"newline", "1\n2"}
	empty     = badValue{"empty", ""}
	huge      = strings.Repeat("A", 1<<20)
)

type badValue struct{ kind, value string }

// noSuch are values of the right form that name nothing, by what errors call them.
var noSuch = map[string]string{
	"agent id": "nobody", "thread": "threads/peers/cli-nobody", "run": "u:999:f", "message": "999", "dead letter": "t:999", "approval": "0123456789abcdef", "question": "0123456789abcdef",
	"provider": "nosuch", "setting": "no.such", "peer": "nobody-at-all", "file": "/no/such/file", "version": "0123", "hash": strings.Repeat("0", 64),
	"name of an environment variable": "NO_SUCH_VARIABLE", "consumer": "nobody",
	"session key": "agent:a1:console:cli:dm:missing", "binding number": "999", "tool": "no_such_tool", "MCP server": "no-server", "hook": "no-hook", "entry id": "999", "account": "nosuch", "person": "shop:nosuch",
}

// foreign is text of Go, gRPC or a parser, which says nothing to a person.
var foreign = regexp.MustCompile(`rpc error|strconv|unmarshal|(?:^| )yaml: |panic:|goroutine \d|runtime error|json: |parsing "|invalid syntax|%!|shorthand|<nil>`)

// withRows are command lines that are right, but for one that is made wrong. They are
// those of [good], except where that names what a home with services must have.
var withRows = map[string][]string{
	"init": {"a9"}, "explain": {"a1", "1"}, "run wait": {"a1", "RUN"}, "run stream": {"a1", "RUN"}, "run abort": {"a1", "RUN"},
	"context show": {"a1", "threads/peers/cli-cli"}, "events": {"a1", "inbox"}, "memory show": {"a1", "threads/peers/cli-cli"}, "memory compact": {"a1", "threads/peers/cli-cli"}, "memory edit": {"a1", "threads/peers/cli-cli"},
	"setup": {"--yes", "--no-chat", "--provider=openai"}, "config set": {"a1", "run.concurrency", "3"}, "config unset": {"a1", "run.concurrency"}, "providers test": {"offline"}, "log level": {"info"},
	"export": {"--peer=bob", "a1", "-"}, "erase": {"--peer=bob", "a1"}, "restore": {"BACKUP"}, "migrate-store": {"--to=database", "--dsn=postgres:///none?host=/no/such", "a1"},
	"status": {"a1"}, "usage": {"a1"}, "prune": {"a1"}, "dlq list": {"a1"}, "stop": {"a1"}, "start": {"a1"}, "certs rotate": {"runner"}, "audit verify": {}, "log show": {"a1"},
}

// threadRows are those of the thread tool.
var threadRows = map[string][]string{
	"init": {"DIR/new"}, "push": {"--thread=DIR", "--source=self", "--type=message", "--content=x"}, "peek": {"--thread=DIR", "--last-event-id=0"},
	"pop": {"--thread=DIR", "--last-event-id=0", "--consumer=worker"}, "subscribe": {"--thread=DIR", "--consumer=c2", "--handler=true"},
	"unsubscribe": {"--thread=DIR", "--consumer=worker"}, "info": {"--thread=DIR"}, "dispatch": {"--thread=DIR"},
}

// moving are the parts of a home that change without a write: sockets, leases, locks,
// logs, the audit log, which records a refused call too, and the files next to a database,
// whose contents are read by SQL.
var moving = regexp.MustCompile(`(^|/)(run|logs|audit|\.?cache|.*\.log|.*\.db-(wal|shm)|lock|.*\.lock|leases?(\.db)?)(/|$)`)

// hashOf are hashes of the names and bytes below dir, and of the rows of its databases.
func hashOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { _ = root.Close() }()
	must(t, filetree.Walk(t.Context(), root, ".", func(e filetree.Entry) error {
		if moving.MatchString(e.Path) {
			return nil
		}
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "%v\n", e.Info.Mode())
		switch {
		case !e.Info.Mode().IsRegular():
		case strings.HasSuffix(e.Path, ".db"):
			hashRows(t, h, filepath.Join(dir, e.Path))
		default:
			b, err := root.ReadFile(e.Path)
			if err != nil {
				return err
			}
			_, _ = h.Write(b)
		}
		all[e.Path] = hex.EncodeToString(h.Sum(nil))
		return nil
	}, func(_ string, err error) { t.Error(err) }))
	return all
}

// hashRows writes the rows of a database without those of leases, which are renewed.
func hashRows(t *testing.T, w io.Writer, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	must(t, err)
	defer db.Close()
	column := func(query string) (out []string) {
		rows, err := db.QueryContext(t.Context(), query)
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var s string
			must(t, rows.Scan(&s))
			out = append(out, s)
		}
		must(t, rows.Err())
		return out
	}
	for _, table := range column("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%lease%' AND name NOT LIKE '%fence%' ORDER BY name") {
		fields := column("SELECT name FROM pragma_table_info('" + table + "') ORDER BY cid")
		all := "quote(\"" + strings.Join(fields, "\") || ',' || quote(\"") + "\")"
		for _, row := range column("SELECT " + all + " FROM \"" + table + "\" ORDER BY 1") {
			_, _ = fmt.Fprintln(w, table, row)
		}
	}
}

// program is one program whose command lines are made wrong.
type program struct {
	name  string
	tree  *cobra.Command
	rows  func(name string) []string
	run   func(args []string) outcome
	cases map[int]int // by exit code
	wrong int
}

// check runs one wrong command line; about are words of which the error has one.
func (p *program) check(t *testing.T, what string, about []string, args ...string) {
	t.Helper()
	begun := time.Now()
	var o outcome
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o = p.run(args)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s %s: accepted, and it has not ended", p.name, what)
	}
	took := time.Since(begun)
	p.cases[o.code]++
	text := strings.TrimSuffix(o.err, "\n")
	line := text[strings.LastIndexByte(text, '\n')+1:]
	var why string
	switch {
	case o.code != 1 && o.code != 2:
		why = fmt.Sprintf("exit code %d", o.code)
	case !errorLine.MatchString(line + "\n"):
		why = "no error line with a suggestion"
	case foreign.MatchString(text):
		why = "text of a library: " + foreign.FindString(text)
	case len(text) > 1500:
		why = fmt.Sprintf("an error of %d bytes", len(text))
	case !utf8.ValidString(text), strings.ContainsFunc(line, unicode.IsControl):
		why = "an error with the bytes of the input"
	case strings.Contains(text, "does not answer at"):
		why = "the value was accepted"
	case !slices.ContainsFunc(about, func(w string) bool { return strings.Contains(strings.ToLower(line), strings.ToLower(w)) }):
		why = fmt.Sprintf("an error that names none of %q", about)
	}
	if why != "" {
		p.wrong++
		t.Errorf("%s %s: %s (in %v)\n%.400q%.300q", p.name, what, why, took, text, o.out)
	}
}

// text checks what a text of kind k must not be; with is a command line with a value.
func (p *program) text(t *testing.T, what string, k command.Kind, about []string, with func(value string) []string) {
	t.Helper()
	about = append(slices.Clone(about), k.Noun)
	one := func(b badValue) {
		words := about
		if b.value != "" && len(b.value) < 100 {
			words = append(slices.Clone(about), "'"+b.value+"'", fmt.Sprintf("%q", b.value), " "+b.value)
		}
		p.check(t, what+" "+b.kind, words, with(b.value)...)
	}
	for _, b := range wrongText {
		one(b)
	}
	one(badValue{"over the limit", huge[:min(k.Most, 1<<20-1)] + "AA"})
	if k.Most < 1<<20 {
		one(badValue{"1 MiB", huge})
	}
	if !k.Lines {
		one(newline)
	}
	if !k.Empty {
		one(empty)
	}
	for _, b := range wrongForm {
		if !k.Any || k.Check != nil && k.Check(b.value) != nil {
			one(b)
		}
	}
	if v, ok := noSuch[k.Noun]; ok && !k.Any {
		one(badValue{"unknown", v})
	}
}

// each checks all flags and arguments of all commands of a program.
func (p *program) each(t *testing.T) (commands int) {
	for _, c := range leaves(p.tree) {
		name := strings.Join(words(c), " ")
		if name == "help" || name == "thread" {
			continue // they take the words of other commands
		}
		commands++
		args := p.rows(name)
		with := func(more ...string) []string { return append(append(words(c), more...), args...) }
		flags := func(f *pflag.Flag) {
			about := []string{"--" + f.Name}
			what := name + " --" + f.Name
			if f.NoOptDefVal == "" {
				p.check(t, what+" missing", about, append(with(), "--"+f.Name)...)
			}
			if k, ok := command.KindOf(f); ok {
				p.text(t, what, k, about, func(value string) []string {
					full := with("--" + f.Name + "=" + value)
					return slices.DeleteFunc(full, func(a string) bool { return a != "--"+f.Name+"="+value && strings.HasPrefix(a, "--"+f.Name+"=") })
				})
				return
			}
			if kind := f.Value.Type(); kind == "string" || kind == "stringArray" || kind == "stringSlice" {
				t.Errorf("%s has no kind", what)
			}
			for _, b := range append(append(slices.Clone(wrongForm), wrongText...), newline, empty, badValue{"1 MiB", huge}) {
				p.check(t, what+" "+b.kind, about, with("--"+f.Name+"="+b.value)...)
			}
		}
		c.LocalFlags().VisitAll(flags)
		c.InheritedFlags().VisitAll(flags)
		kinds := command.Operands(c)
		operand := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "--") })
		for i, use := range strings.Fields(c.Use)[1:] {
			operandName := strings.TrimSuffix(strings.Trim(use, "[]"), "...")
			k, ok := kinds[operandName]
			if !ok {
				t.Errorf("%s: the argument %s has no kind", name, use)
				continue
			}
			at := operand + i
			if operand < 0 {
				at = len(args) + i
			}
			what, about := name+" "+use, []string{operandName}
			if !strings.HasPrefix(use, "[") {
				p.check(t, what+" missing", about, append(words(c), args[:min(at, len(args))]...)...)
			}
			p.text(t, what, k, about, func(value string) []string {
				full := append(words(c), args[:min(at, len(args))]...)
				if full = append(full, value); at+1 < len(args) {
					full = append(full, args[at+1:]...)
				}
				return full
			})
		}
	}
	return commands
}

// TestBadInput derives from the command trees of agentctl and thread, with the kinds that
// they declare, a wrong value of every sort for each flag and each argument, with services
// that run, and demands exit code 1 or 2, one error line that names the argument, is
// short, has no text of a library and none of the bytes that were wrong, and a way on;
// and a home that is unchanged. What is free text is refused only where no such text can
// be meant: with a NUL, as invalid UTF-8, and over its limit.
func TestBadInput(t *testing.T) {
	begun := time.Now()
	home := filepath.Join(t.TempDir(), "h")
	must(t, os.MkdirAll(home, 0o700))
	must(t, os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte("mcp: {servers: {files: {command: [no-such-program]}}}\nchannels: {shop: {type: webhook, secret: \"env:HOME\"}}\n"), 0o600))
	services(t, home)
	t.Setenv("PATH", built(t)+":"+os.Getenv("PATH"))
	t.Chdir(t.TempDir())
	do := func(in string) func(args []string) outcome {
		return func(args []string) outcome {
			var out, errs bytes.Buffer
			code := Main(args, strings.NewReader(in), &out, &errs, func(name string) string {
				return map[string]string{"THECLAW_HOME": home, "HOME": home, "PATH": os.Getenv("PATH")}[name]
			})
			return outcome{code, out.String(), errs.String()}
		}
	}
	run := do("")
	ready := func(args ...string) string {
		t.Helper()
		o := run(args)
		if o.code != 0 {
			t.Fatalf("agentctl %q: exit %d, %s%s", args, o.code, o.out, o.err)
		}
		return o.out
	}
	ready("init", "a1", "--provider", "offline")
	ready("config", "set", "a1", "quota.tokens_per_day", "0") // what is used is written a moment later
	ready("start", "a1")
	ready("send", "a1", "say: hi", "--wait")
	// The session file is written after the reply.
	session, bound := filepath.Join(home, "agents/a1/sessions/threads%2Fpeers%2Fcli-cli.jsonl"), time.Now().Add(time.Minute)
	for _, err := os.Stat(session); err != nil; _, err = os.Stat(session) {
		if time.Now().After(bound) {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
	turn := strings.TrimSpace(ready("turns", "a1", "-o", "json"))
	key := regexp.MustCompile(`"run_id": "([^"]+)"`).FindStringSubmatch(turn)[1]
	backup := filepath.Join(t.TempDir(), "a1.tar")
	ready("backup", backup)
	ready("stop", "a1")
	ready("certs", "init")
	dir := filepath.Join(t.TempDir(), "t")
	thread := func(args []string) outcome {
		var out, errs bytes.Buffer
		code := threadtool.Main(args, strings.NewReader(""), &out, &errs, func(string) string { return "" }, "test")
		return outcome{code, out.String(), errs.String()}
	}
	for _, args := range [][]string{{"init", dir}, {"subscribe", "--thread", dir, "--consumer", "worker", "--handler", "true"}} {
		if o := thread(args); o.code != 0 {
			t.Fatal(o)
		}
	}
	before, threadBefore := hashOf(t, home), hashOf(t, dir)
	fill := func(rows []string, old, by string) []string {
		out := slices.Clone(rows)
		for i := range out {
			out[i] = strings.Replace(out[i], old, by, 1)
		}
		return out
	}
	ctl := &program{name: "agentctl", tree: tree(), cases: map[int]int{}, run: run, rows: func(name string) []string {
		if r, ok := withRows[name]; ok {
			return fill(fill(r, "RUN", key), "BACKUP", backup)
		}
		return good[name]
	}}
	tool := &program{
		name: "thread", tree: threadtool.New(command.New(nil, nil, nil, func(string) string { return "" }, "test")), cases: map[int]int{}, run: thread,
		rows: func(name string) []string { return fill(threadRows[name], "DIR", dir) },
	}
	commands := ctl.each(t) + tool.each(t)
	violations := ctl.wrong + tool.wrong
	for dir, was := range map[string]map[string]string{home: before, dir: threadBefore} {
		if diff := cmp.Diff(was, hashOf(t, dir)); diff != "" {
			violations++
			t.Errorf("%s has changed (-before +after):\n%s", dir, diff)
		}
	}
	left, err := os.ReadDir(".")
	must(t, err)
	for _, f := range left {
		violations++
		t.Errorf("%q was written", f.Name())
	}
	one, two := ctl.cases[1]+tool.cases[1], ctl.cases[2]+tool.cases[2]
	fmt.Fprintf(t.Output(), "badinput commands=%d cases=%d exit1=%d exit2=%d violations=%d seconds=%.0f\n", commands, one+two+ctl.cases[0]+tool.cases[0], one, two, violations, time.Since(begun).Seconds())
}
