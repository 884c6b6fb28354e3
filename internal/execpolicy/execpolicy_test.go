package execpolicy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/execpolicy"
)

// listed is a policy with the usual entries; what it does not allow is asked.
func listed() execpolicy.Policy {
	return execpolicy.Policy{
		Security: execpolicy.Allowlist, Ask: execpolicy.AskOnMiss, Fallback: execpolicy.Deny, SafeBins: execpolicy.DefaultSafeBins,
		Allow: []execpolicy.Entry{
			{Pattern: "/usr/bin/git", Args: []string{"status"}},
			{Pattern: "/usr/bin/git", Args: []string{"push"}},
			{Pattern: "/usr/bin/ls"},
			{Pattern: "/opt/**/rg"},
			{Pattern: "echo"},
			{Pattern: "/usr/bin/date", Args: []string{"-u"}},
		},
	}
}

// Runs unasked, and what then runs.
var unasked = [][2]string{
	{"git status", "/usr/bin/git status"},
	{"git push origin main", "/usr/bin/git push origin main"},
	{"ls", "/usr/bin/ls"},
	{"ls -la 'a b'", "/usr/bin/ls -la 'a b'"},
	{`"ls" "-l"`, "/usr/bin/ls -l"},
	{"'ls'", "/usr/bin/ls"},
	{"l's'", "/usr/bin/ls"},
	{"  ls\t-l  ", "/usr/bin/ls -l"},
	{"ls; ls", "/usr/bin/ls ; /usr/bin/ls"},
	{"ls;", "/usr/bin/ls"},
	{"ls && git status", "/usr/bin/ls && /usr/bin/git status"},
	{"ls || ls | wc -l && git status", "/usr/bin/ls || /usr/bin/ls | /usr/bin/wc -l && /usr/bin/git status"},
	{"ls | grep -i foo | sort -u | uniq -c | head -n 5", "/usr/bin/ls | /usr/bin/grep -i foo | /usr/bin/sort -u | /usr/bin/uniq -c | /usr/bin/head -n 5"},
	{"ls | jq .name", "/usr/bin/ls | /usr/bin/jq .name"},
	{"head --lines=5", "/usr/bin/head '--lines=5'"},
	{"ls | cut -d : -f 1", "/usr/bin/ls | /usr/bin/cut -d ':' -f 1"},
	{"ls | uniq -f 1 -s 2 -w 3 -c", "/usr/bin/ls | /usr/bin/uniq -f 1 -s 2 -w 3 -c"},
	{"ls | tr a-z A-Z", "/usr/bin/ls | /usr/bin/tr a-z A-Z"},
	{"ls # and no more", "/usr/bin/ls"},
	{"/usr/bin/ls", "/usr/bin/ls"},
	{"/usr/bin/../bin/ls x", "/usr/bin/ls x"},
	{"/usr/bin//ls", "/usr/bin/ls"},
	{"date -u", "/usr/bin/date -u"},
	{"date -u x", "/usr/bin/date -u x"},
	{"ls 'it'\"'\"'s'", `/usr/bin/ls 'it'"'"'s'`},
	{"ls '$(rm)'", "/usr/bin/ls '$(rm)'"},
	{"ls ''", "/usr/bin/ls ''"},
	{"ls 'é'", "/usr/bin/ls 'é'"},
	{"ls '*' '~' '{a,b}'", "/usr/bin/ls '*' '~' '{a,b}'"},
}

// Is asked for: each runs a program, reads or writes a file, or means something else than it seems.
var asked = slices.Concat([]string{
	"rm -rf /", "git", "git log", "git;rm", "git status;rm x", "git status ; rm x", "git status && rm x", "git status || rm x", "git status | rm", "git status & rm x", "git status &",
	"git $(x)", "git `x`", "git status $(rm x)", "git status `rm x`", "git status \"$(rm x)\"", "git status \"`rm x`\"", "git status <(rm x)", "git status >(rm x)",
	"git status $x", "git status \"$x\"", "git status ${x}", "git status $((1))", "git status $[1]", "git status $'a'", "git status $\"a\"", "git status ~", "git status ~/x", "git status *", "git status ?",
	"git status [a]", "git status {a,b}", "git status a\\ b", "git\\ status", "\\git status", "git status \"a\\b\"", "git status \"!x\"", "git status !x",
	"git status > x", "git status >> x", "git status < x", "git status 2>&1", "git status 2>x", "git status &> x", "git status >| x", "git status <> x", "git status << x", "git status <<< x", "git status |& ls",
	"env git status", "env -i git status", "/tmp/git status", "./git status", "../me/git status", "/opt/tool/bin/git status", "/home/me/git status", "/usr/bin/../../tmp/git status",
	"git\nrm", "git status\nrm x", "git status\rrm x", "ls\n", "\nls", "ls \\\nx", "git\u00a0status", "git\u2003status", "\u00a0git status", "g\u200bit status", "git status \u202erm", "ls\x00", "ls\x1b[2K", "ls \x7f", "ls\v-l", "ls\f-l", "\xff", "ls '\xff'", "ls \u2028x",
	"git -c core.pager=x status", "git -c core.pager=x push", "git --git-dir=x status", "git -C /x status", "git 'status;rm'", "git Status", "git 'status '", "git statu", "gi\u0442 status",
	"GIT status", "Ls", "x=1 ls", "x=1", "PATH=/tmp ls", "LD_PRELOAD=x ls", "ls x=$y", "x+=1 ls", "a[0]=1 ls",
	"(ls)", "{ ls; }", "( ls )", "if ls; then ls; fi", "while ls; do ls; done", "for x in a; do ls; done", "case a in a) ls;; esac", "ls() { rm; }", "function ls { rm; }", "ls () { rm; }; ls",
	"! ls", "time ls", "coproc ls", "[[ a ]]", "[ a ]", "((1))", "let x=1", "declare x=1", "export x=1", "local x", "readonly x", "typeset x",
	"eval ls", "exec ls", "source ls", ". ls", "command ls", "builtin ls", "alias ls=rm", "cd /", "cd / && ls", "set -e; ls", "trap ls EXIT", "exit", "true", ":", "test a", "type ls", "hash -p /tmp/git git", "enable -f x ls", "unset PATH", "shopt -s expand_aliases",
	"sh -c ls", "bash -c 'git status'", "python3 -c x", "node -e x", "xargs git", "find x -exec git", "sudo ls", "ssh h ls", "awk x", "sed x", "tar x", "make", "curl x", "nosuchbin123", "nosuchbin123 status", "echo", "echo x", "date", "date +x", "date -s x", "id",
	"rg x", "/opt/rg", "''", "'' ls", "\"\"", "'git status'", "\"ls -l\"", "'ls ' x", "if", "'if'", "then", "}", "ls }; x",
	"", " ", "\t", "#ls", ";", "&&", "| ls", "ls |", "ls &&", "ls ;;", "ls ; ; ls", "'", "\"", "ls '", "ls \"", "`", "$(", "(", ")", "ls )", "ls (x)", "<", ">",
	"grep foo /etc/passwd", "grep foo notes", "grep notes", "grep -f notes x", "grep -fnotes x", "grep -f/etc/passwd x", "grep --file=x x", "grep --fil x x", "grep -r x", "grep -ir x", "grep -R x", "grep --recursive x", "grep --rec x", "grep -d recurse x", "grep x .", "grep x ..", "grep x a/b", "grep --exclude-from=x y",
	"sort -o x", "sort -ox", "sort -uo x", "sort --output=x", "sort --out x", "sort --compress-program=x", "sort --comp x", "sort --files0-from=x", "sort -T x", "sort notes", "sort ./x", "uniq x", "uniq - x", "uniq 1 x", "uniq - 5", "uniq -c - 5", "uniq - -c 5", "uniq -f 1 - 5", "uniq -- - 5", "uniq - --skip-fields=1 5", "wc --files0-from=x", "wc notes", "wc /x", "head notes", "head -n5 /etc/passwd", "tail -f notes", "tail --pid=/x", "cut -f1 notes", "tr a /b",
	"jq -f x", "jq --from-file x", "jq --slurpfile a b .", "jq --rawfile a b .", "jq -L x .", "jq . notes", "jq 'import \"x\" as $x; .'", "jq 'include \"x\"; .'", "cat", "cat x", "/usr/bin/grep x", "/usr/bin/sort",
}, []string{"ls " + strings.Repeat("x", 8<<10), strings.Repeat("(", 16<<10), strings.Repeat("$(", 8<<10), strings.Repeat("{ ", 8<<10), strings.Repeat("! ", 8<<10)})

// S2-15: what runs without a person is what the lists allow, each program with its arguments.
func TestUnasked(t *testing.T) {
	for _, c := range unasked {
		if v := listed().Decide(c[0], host(), false); v.Action != execpolicy.Run || v.Text != c[1] {
			t.Errorf("%q: %+v, want %q", c[0], v, c[1])
		}
	}
	if len(asked) < 200 {
		t.Errorf("only %d commands", len(asked))
	}
	for _, text := range asked {
		if v := listed().Decide(text, host(), false); v.Action != execpolicy.Question || v.Why == "" || v.Fallback {
			t.Errorf("%q: %+v", text, v)
		}
		p := listed()
		p.Ask = execpolicy.AskOff
		if v := p.Decide(text, host(), false); v.Action != execpolicy.Refuse || v.Why == "" {
			t.Errorf("%q without a person: %+v", text, v)
		}
	}
}

// What each combination does with a line that is allowed and with one that is not.
func TestDecide(t *testing.T) {
	const run, refuse, question = execpolicy.Run, execpolicy.Refuse, execpolicy.Question
	for _, c := range []struct {
		security     execpolicy.Security
		ask          execpolicy.Ask
		hit, miss    execpolicy.Action
		guard, miss2 execpolicy.Action // with text from outside
	}{
		{"deny", "off", refuse, refuse, refuse, refuse},
		{"deny", "always", refuse, refuse, refuse, refuse},
		{"allowlist", "off", run, refuse, question, question},
		{"allowlist", "on-miss", run, question, question, question},
		{"allowlist", "always", question, question, question, question},
		{"full", "off", run, run, question, question},
		{"full", "on-miss", run, run, question, question},
		{"full", "always", question, question, question, question},
		{"nonsense", "off", refuse, refuse, refuse, refuse},
		{"full", "nonsense", question, question, question, question},
	} {
		p := listed()
		p.Security, p.Ask = c.security, c.ask
		for _, f := range []execpolicy.Security{"deny", "allowlist", "full"} {
			p.Fallback = f
			hit, miss := p.Decide("git status", host(), false), p.Decide("rm x", host(), false)
			guarded, other := p.Decide("git status", host(), true), p.Decide("rm x", host(), true)
			if hit.Action != c.hit || miss.Action != c.miss || guarded.Action != c.guard || other.Action != c.miss2 {
				t.Errorf("%s %s: %v %v %v %v, want %+v", c.security, c.ask, hit, miss, guarded, other, c)
			}
			if hit.Fallback != (hit.Action == question && f != "deny") || miss.Fallback != (miss.Action == question && f == "full") || guarded.Fallback || other.Fallback {
				t.Errorf("%s %s, fallback %s: %+v %+v %+v %+v", c.security, c.ask, f, hit, miss, guarded, other)
			}
		}
	}
}

// Of the host nothing is known: no list allows a line, "always" is not offered, and what runs is the line as it was given.
func TestUnknownHost(t *testing.T) {
	for _, c := range []struct {
		security execpolicy.Security
		ask      execpolicy.Ask
		fallback execpolicy.Security
		want     execpolicy.Action
		unasked  bool // without an answer it runs
	}{
		{"full", "off", "deny", execpolicy.Run, false},
		{"full", "on-miss", "deny", execpolicy.Run, false},
		{"full", "always", "full", execpolicy.Question, true},
		{"allowlist", "off", "full", execpolicy.Refuse, false},
		{"allowlist", "on-miss", "allowlist", execpolicy.Question, false},
		{"allowlist", "on-miss", "full", execpolicy.Question, true},
		{"allowlist", "always", "allowlist", execpolicy.Question, false},
		{"deny", "off", "full", execpolicy.Refuse, false},
	} {
		p := listed()
		p.Security, p.Ask, p.Fallback = c.security, c.ask, c.fallback
		p.Allow = append(p.Allow, execpolicy.Entry{Pattern: "/**"})
		for _, text := range []string{"ls", "/usr/bin/ls", "./build.sh", "ls | wc -l", "git log"} {
			v := p.Decide(text, execpolicy.Host{}, false)
			if v.Action != c.want || v.Text != text || v.Always != nil || v.Used != nil || v.Fallback != c.unasked || (v.Why == "") != (c.want == execpolicy.Run) {
				t.Errorf("%+v, %s: %+v", c, text, v)
			}
		}
	}
}

// What "always" would add: the path and a subcommand; nothing for what runs other programs, what the
// agent can write, or what cannot be analyzed.
func TestAlways(t *testing.T) {
	for text, want := range map[string]string{
		"git log": "/usr/bin/git log", "git -c x log": "/usr/bin/git (any arguments)", "git status; git log": "/usr/bin/git log",
		"touch x && touch y && touch x": "/usr/bin/touch x, /usr/bin/touch y", "id": "/usr/bin/id (any arguments)", "touch /x": "/usr/bin/touch (any arguments)",
		"sh -c x": "", "env git log": "", "python3 x": "", "make": "", "xargs rm": "", "find x": "", "ssh h": "", "sudo id": "", "git log | bash": "", "node x": "", "awk x": "",
		"prlimit sh -c x": "", "setpriv sh": "", "fakeroot sh": "", "bwrap sh": "", "ssh-agent sh": "", "dbus-run-session sh": "", "ip netns exec x sh": "", "valgrind sh": "", "choom sh": "", "i386 sh": "", "newgrp x": "", "sg x": "", "m4": "", "systemd-inhibit sh": "",
		"./run.sh": "", "/tmp/git log": "", "nosuchbin123": "", "git log > x": "", "git log\nid": "", "/opt/tool/bin/git log": "",
	} {
		v := listed().Decide(text, host(), false)
		var got []string
		for _, e := range v.Always {
			got = append(got, e.String())
		}
		if v.Action != execpolicy.Question || strings.Join(got, ", ") != want {
			t.Errorf("%q: %+v, want %q", text, v, want)
		}
		p := listed()
		if p.Allow = append(p.Allow, v.Always...); len(v.Always) > 0 && p.Decide(text, host(), false).Action != execpolicy.Run {
			t.Errorf("%q is asked again after always", text)
		}
	}
	p := listed()
	if p.Ask = execpolicy.AskAlways; p.Decide("git log", host(), false).Always != nil {
		t.Error("always is offered although each command is asked for")
	}
	h := host()
	h.Real = func(string) string { return "/usr/bin/mawk" }
	if v := listed().Decide("id", h, false); v.Always != nil {
		t.Error("always is offered for a link to an interpreter")
	}
}

func TestPatterns(t *testing.T) {
	h := host()
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/usr/bin/git", "/usr/bin/git", true},
		{"/usr/bin/git", "/usr/bin/git2", false},
		{"/usr/bin/git", "/x/usr/bin/git", false},
		{"/usr/bin/g*", "/usr/bin/git", true},
		{"/usr/*/git", "/usr/bin/git", true},
		{"/usr/*/git", "/usr/a/b/git", false},
		{"/usr/**/git", "/usr/a/b/git", true},
		{"/usr/**/git", "/usr/git", true},
		{"/**", "/usr/git", true},
		{"git", "/usr/bin/git", false},
		{"*", "/usr/bin/git", false},
		{"/usr/bin/gi?", "/usr/bin/git", true},
		{"/usr/bin/g.t", "/usr/bin/git", false},
		{"/usr/bin/(git", "/usr/bin/git", false},
		{"~/bin/*", "/home/me/bin/x", true},
		{"~/bin/*", "/home/you/bin/x", false},
		{"", "/usr/bin/git", false},
		{"/usr/bin/*", "/usr/bin/a\nb", true},
		{"/usr/bin/git", "", false},
	} {
		if got := (execpolicy.Entry{Pattern: c.pattern}).Matches(execpolicy.Command{Words: []string{"x"}, Path: c.path}, h); got != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.path, got)
		}
	}
}

func TestDocument(t *testing.T) {
	for _, bad := range []string{
		"", "[]", `{"version":2}`, `{"version":1,"defaults":{"security":"some"}}`, `{"version":1,"agents":{"a":{"ask":"never"}}}`, `{"version":1,"agents":{"a":{"askFallback":"ask"}}}`,
		`{"version":1,"agents":{"a":{"allowlist":[{"pattern":" "}]}}}`, "{\"version\":1,\"x\":\"\xff\"}", `{"version":1,"x":"` + strings.Repeat("x", execpolicy.MaxDocument) + `"}`,
		`{"version":1,"agents":{"a":{"allowlist":[` + strings.Repeat(`{"pattern":"/x"},`, execpolicy.MaxEntries) + `{"pattern":"/x"}]}}}`,
	} {
		if d, err := execpolicy.Parse([]byte(bad)); err == nil {
			t.Errorf("%.60q: %+v", bad, d)
		}
	}
	d, err := execpolicy.Parse([]byte(`{"version":1,"socket":{"path":"/x","token":"secret"},"defaults":{"ask":"off"},
		"agents":{"default":{"security":"full","allowlist":[{"pattern":"/a"}]},"main":{"security":"allowlist","allowlist":[{"id":"7","pattern":"/b","args":["x"]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r := d.Rules("main"); r.Security != "allowlist" || r.Ask != "off" || r.AskFallback != "deny" {
		t.Errorf("main: %+v", r)
	}
	if r := d.Rules("other"); r.Security != "deny" {
		t.Errorf("other: %+v", r)
	}
	settings := execpolicy.Policy{Security: "full", Ask: "on-miss", Fallback: "full", SafeBins: []string{"wc"}}
	if p := d.Bound("main", settings); p.Security != "allowlist" || p.Ask != "on-miss" || p.Fallback != "deny" || len(p.Allow) != 2 || len(p.SafeBins) != 1 {
		t.Errorf("%+v", p)
	}
	d.Add("main", []execpolicy.Entry{{Pattern: "/b", Args: []string{"x"}}, {Pattern: "/b"}})
	d.Add("new", []execpolicy.Entry{{Pattern: "/c"}})
	d.Set("new", execpolicy.Rules{Security: "full"})
	b, err := d.JSON()
	if err != nil || strings.Contains(string(b), "secret") {
		t.Fatalf("%s, %v", b, err)
	}
	again, err := execpolicy.Parse(b)
	if err != nil || len(again.Agents["main"].Allowlist) != 3 || again.Rules("new").Security != "full" || again.Rules("new").Ask != "off" {
		t.Fatalf("%s, %v", b, err)
	}
	ids := map[string]bool{}
	for _, e := range again.Agents["main"].Allowlist {
		ids[e.ID] = true
	}
	if len(ids) != 3 || !ids["7"] {
		t.Errorf("ids %v", ids)
	}
	now := time.UnixMilli(1_800_000_000_000)
	full := execpolicy.NewDocument()
	for n := range execpolicy.MaxEntries {
		full.Add("a", []execpolicy.Entry{{Pattern: fmt.Sprint("/", n)}})
	}
	if _, err := full.JSON(); err != nil {
		t.Error(err)
	}
	for _, e := range []execpolicy.Entry{{Pattern: "/more"}, {Pattern: "/a\x00"}, {Pattern: " "}} {
		wrong := execpolicy.NewDocument()
		if e.Pattern == "/more" {
			wrong = full
		}
		wrong.Add("a", []execpolicy.Entry{e})
		if _, err := wrong.JSON(); err == nil {
			t.Errorf("%q is stored, and could not be read", e.Pattern)
		}
	}
	used := []execpolicy.Entry{{Pattern: "/b"}, {Pattern: "/none"}}
	if !d.Touch("main", used, strings.Repeat("é", 200), now) || d.Touch("main", used, "y", now.Add(time.Minute)) || !d.Touch("main", used, "y", now.Add(2*time.Hour)) {
		t.Error("the last use is recorded once an hour")
	}
	if p := execpolicy.NewDocument().Bound("any", settings); p.Security != "full" || p.Ask != "on-miss" || p.Fallback != "full" {
		t.Errorf("a new document bounds: %+v", p)
	}
}

// What is printed runs as the words that were checked, in bash and in sh.
func TestPrinted(t *testing.T) {
	dir := t.TempDir()
	show := filepath.Join(dir, "show")
	if err := os.WriteFile(show, []byte("#!/bin/sh\nprintf '<%s>' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := execpolicy.System("/usr/bin:/bin", dir)
	for _, text := range []string{`./show a 'b c' "d'e" '$x' '*' '' '\' "a;b"`, `./show a && ./show 'é' ; ./show "(" || ./show`, "./show -n '#' '!' '~' '{a,b}' 'a=b'"} {
		line, err := execpolicy.Analyze(text, h)
		if err != nil || !line.Found() {
			t.Fatal(line, err)
		}
		for _, shell := range []string{"sh", "bash"} {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Fatal(err)
			}
			run := func(text string) string {
				c := exec.CommandContext(t.Context(), program, "-c", text)
				c.Dir = dir
				out, err := c.CombinedOutput()
				return fmt.Sprint(string(out), err)
			}
			if a, b := run(text), run(line.String()); a != b {
				t.Errorf("%s: %s printed as %s: %s, want %s", shell, text, line, b, a)
			}
		}
	}
}

// The printed line is analyzed to the same words.
func FuzzPrinted(f *testing.F) {
	for _, c := range unasked {
		f.Add(c[0])
	}
	for _, c := range asked {
		f.Add(c)
	}
	h := host()
	f.Fuzz(func(t *testing.T, text string) {
		line, err := execpolicy.Analyze(text, h)
		if err != nil {
			return
		}
		again, err := execpolicy.Analyze(line.String(), h)
		if err != nil {
			if len(line.String()) > 8<<10 {
				return // the quotes have made it too long, and it is not printed from a printed one
			}
			t.Fatalf("%q is printed as %q: %v", text, line, err)
		}
		if len(again.Commands) != len(line.Commands) || again.String() != line.String() {
			t.Fatalf("%q is printed as %q, and then as %q", text, line, again)
		}
		for i, c := range line.Commands {
			if a := again.Commands[i]; a.Path != c.Path || !slices.Equal(a.Words[1:], c.Words[1:]) {
				t.Fatalf("%q: %+v, printed %+v", text, c, a)
			}
		}
	})
}
