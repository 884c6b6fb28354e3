package execpolicy

import (
	"cmp"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Security says what may run without a person.
type Security string

// The values of a Security, the strictest first.
const (
	Deny      Security = "deny"      // nothing
	Allowlist Security = "allowlist" // what the lists allow
	Full      Security = "full"      // everything
)

// Ask says when a person is asked.
type Ask string

// The values of an Ask, the strictest last.
const (
	AskOff    Ask = "off"
	AskOnMiss Ask = "on-miss" // where security is allowlist and the lists do not allow the line
	AskAlways Ask = "always"
)

var (
	securities = []Security{Deny, Allowlist, Full}
	asks       = []Ask{AskAlways, AskOnMiss, AskOff}
)

// StricterSecurity returns the stricter of two; a value that is none counts as the strictest.
func StricterSecurity(a, b Security) Security {
	return securities[max(0, min(slices.Index(securities, a), slices.Index(securities, b)))]
}

// StricterAsk returns the stricter of two; a value that is none counts as the strictest.
func StricterAsk(a, b Ask) Ask {
	return asks[max(0, min(slices.Index(asks, a), slices.Index(asks, b)))]
}

// Policy is what holds for the commands of an agent.
type Policy struct {
	Security Security
	Ask      Ask
	// Fallback decides in place of Security when a question got no answer.
	Fallback Security
	Allow    []Entry
	// SafeBins are names of programs that may run without an entry as long as they have no
	// argument that may be a file.
	SafeBins []string
}

// Entry allows a program.
type Entry struct {
	// Pattern of the path of the program; * matches within a segment, ** across segments. One
	// without a / matches nothing.
	Pattern string
	// Args are the words that must follow; empty: any may.
	Args []string
}

// String is the entry as a person reads it.
func (e Entry) String() string {
	if len(e.Args) == 0 {
		return e.Pattern + " (any arguments)"
	}
	return e.Pattern + " " + strings.Join(e.Args, " ")
}

// Matches reports whether the entry allows a command.
func (e Entry) Matches(c Command, h Host) bool {
	pattern := e.Pattern
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok && h.Home != "" {
		pattern = filepath.Join(h.Home, rest)
	}
	if c.Path == "" || !strings.Contains(pattern, "/") || len(c.Words) <= len(e.Args) {
		return false
	}
	return glob(pattern).MatchString(c.Path) && slices.Equal(c.Words[1:len(e.Args)+1], e.Args)
}

// wild are the parts of a pattern that are no literal text.
var wild = regexp.MustCompile(`\*\*/|\*\*|\*|\?`)

func glob(pattern string) *regexp.Regexp {
	var b strings.Builder
	at := 0
	for _, m := range wild.FindAllStringIndex(pattern, -1) {
		b.WriteString(regexp.QuoteMeta(pattern[at:m[0]]))
		b.WriteString(map[string]string{"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[pattern[m[0]:m[1]]])
		at = m[1]
	}
	b.WriteString(regexp.QuoteMeta(pattern[at:]))
	return regexp.MustCompile(`(?s)\A` + b.String() + `\z`)
}

// Match returns the index in p.Allow of the entry that allows a command, or -1, and whether the
// command is allowed, by that entry or as a safe program.
func (p Policy) Match(c Command, h Host) (entry int, allowed bool) {
	if i := slices.IndexFunc(p.Allow, func(e Entry) bool { return e.Matches(c, h) }); i >= 0 {
		return i, true
	}
	return -1, h.safe(c, p.SafeBins)
}

// Action is what is done with a command line.
type Action int

// The actions.
const (
	Refuse Action = iota
	Run
	Question
)

// Verdict is a decision and its reason.
type Verdict struct {
	Action Action
	// Text is what runs: the line printed again where its lists were asked, else as it was given.
	Text string
	// Why it is refused or asked, in one line.
	Why string
	// Always are the entries that would allow the line from now on; empty: it cannot be allowed
	// in advance.
	Always []Entry
	// Fallback reports whether it runs when the question gets no answer.
	Fallback bool
	// Used are the indexes of the entries that allow it.
	Used []int
}

// errUnknown is why no list allows a line for a host of which nothing is known.
var errUnknown = errors.New("it runs in a container, where no allow list applies")

// Decide decides on a line. With guard, text from outside takes part in the conversation, so
// that nothing but a person suffices.
func (p Policy) Decide(text string, h Host, guard bool) Verdict {
	security, ask := StricterSecurity(p.Security, Full), StricterAsk(p.Ask, AskOff)
	if security == Deny {
		return Verdict{Text: text, Why: "commands that leave the sandbox are refused (security deny)"}
	}
	v := Verdict{Text: text, Action: Run}
	if security == Full && ask != AskAlways && !guard {
		return v
	}
	line, err := Line{}, errUnknown
	if h.Stat != nil {
		line, err = Analyze(text, h)
	}
	allowed, miss := err == nil, ""
	if err != nil {
		miss = err.Error()
	}
	if allowed && line.Found() {
		v.Text = line.String()
	}
	for _, c := range line.Commands {
		switch i, ok := p.Match(c, h); {
		case i >= 0:
			v.Used = append(v.Used, i)
		case !ok:
			allowed = false
			miss = cmp.Or(miss, "no entry of the allow list matches "+cmp.Or(c.Path, c.Words[0]))
		}
	}
	switch {
	case guard:
		v.Action, v.Why = Question, "text from outside is part of the conversation"
	case ask == AskAlways:
		v.Action, v.Why = Question, "every command is asked for (ask always)"
	case security == Allowlist && !allowed && ask == AskOnMiss:
		v.Action, v.Why = Question, miss
	case security == Allowlist && !allowed:
		v.Action, v.Why = Refuse, miss
	}
	if v.Action == Question {
		v.Fallback = !guard && (p.Fallback == Full || p.Fallback == Allowlist && allowed)
		if err == nil && ask != AskAlways { // which would ask again
			v.Always = p.always(line, h)
		}
	}
	return v
}

// subcommand is what a first argument must look like to become part of an entry.
var subcommand = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// always returns the entries that a line lacks; nil when it cannot be allowed in advance.
func (p Policy) always(l Line, h Host) (out []Entry) {
	for _, c := range l.Commands {
		if _, ok := p.Match(c, h); ok {
			continue
		}
		if c.Path == "" || wild.MatchString(c.Path) || !h.onPath(c.Path) || launches(c.Path) || h.Real != nil && launches(h.Real(c.Path)) {
			return nil
		}
		e := Entry{Pattern: c.Path}
		if len(c.Words) > 1 && subcommand.MatchString(c.Words[1]) {
			e.Args = c.Words[1:2]
		}
		if !slices.ContainsFunc(out, func(o Entry) bool { return o.Pattern == e.Pattern && slices.Equal(o.Args, e.Args) }) {
			out = append(out, e)
		}
	}
	return out
}

// launchers are programs that run others, or code in their arguments. One that ends with *
// stands for all that begin so.
var launchers = strings.Fields(`sh bash dash zsh ksh* mksh fish csh tcsh ash busybox toybox rbash
	env python* pypy* ipython* node* deno bun perl* ruby* irb php* lua* tclsh* wish* expect guile* r rscript julia java jshell scala groovy
	pwsh powershell awk gawk mawk nawk original-awk sed ed ex vi vim* nvim nano emacs* less more most man pager
	xargs find fd fdfind parallel sudo sudoedit doas su runuser pkexec ssh scp sftp rsync mosh telnet nc ncat netcat* socat
	docker* podman* nerdctl lxc kubectl make gmake cmake ninja bazel npm npx yarn pnpm corepack pip* pipx uv uvx poetry cargo rustup go gcc* g++* cc c++ clang* gdb lldb
	gradle mvn ant timeout nice ionice nohup setsid stdbuf strace ltrace script time unshare nsenter chroot chrt taskset setarch linux32 linux64 flock unbuffer
	systemd-run systemctl at batch crontab cron* screen tmux watch entr ld.so ld-linux* ld-musl* eval exec source command builtin . trap start-stop-daemon
	prlimit setpriv capsh choom coresched uclampset numactl i386 x86_64 newgrp sg gosu chpst fakeroot* faketime bwrap firejail proot valgrind perf ip
	ssh-agent dbus-run-session dbus-launch xvfb-run systemd-inhibit systemd-nspawn hyperfine rlwrap torsocks proxychains* m4 gnuplot
	tar zip dpkg apt* rpm dnf yum run-parts install-info split sqlite3 psql mysql* osascript open xdg-open`)

func launches(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	return slices.ContainsFunc(launchers, func(l string) bool {
		start, ok := strings.CutSuffix(l, "*")
		return name == l || ok && strings.HasPrefix(name, start)
	})
}
