package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The recorded cases in which we answer something else, on purpose.
var deviations = map[string]int{
	"29-subscribe-badfilter-accepted": 2, // a filter is judged when it is given (S0-64)
	"73-f-json-nonjson":               2, // no functions, no tautologies, no sub-selects (S0-64)
	"76-f-or":                         2,
	"77-f-inj":                        2,
	"79-f-subselect":                  2,
}

// S0-52 to S0-64, S0-136: the recorded session of the tool, replayed: the same
// exit codes and, where it succeeds, the same bytes but for times.
func TestThreadRecorded(t *testing.T) {
	a, err := txtar.ParseFile("testdata/recorded.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
	}
	root := t.TempDir()
	for _, name := range []string{"flt", "disp"} { // made by commands that were not recorded
		succeeds(t, "", "init", filepath.Join(root, name))
	}
	flt := filepath.Join(root, "flt")
	succeeds(t, "", "push", "--thread", flt, "--source", "external:tui:tui-main:dm:alice:alice", "--type", "message", "--content", `{"text":"hello"}`)
	succeeds(t, "", "push", "--thread", flt, "--source", "self", "--type", "record", "--subtype", "toolcall", "--content", `{"n":1}`)
	succeeds(t, "", "push", "--thread", flt, "--source", "self", "--type", "message", "--content", "plain")
	n := 0
	for _, f := range a.Files {
		name, isCommand := strings.CutSuffix(f.Name, ".cmd")
		if !isCommand {
			continue
		}
		n++
		args := split(strings.ReplaceAll(string(f.Data), "/srv/claw-a/t", root))[1:]
		want, err := strconv.Atoi(strings.TrimSpace(files[name+".exit"]))
		if err != nil {
			t.Fatal(name, err)
		}
		deviates, is := deviations[name]
		if is {
			want = deviates
		}
		o := tool(t, files[name+".stdin"], args...)
		if o.code != want || want != 0 && (o.out != "" || !errorLine.MatchString(o.err)) || want == 0 && o.err != "" {
			t.Errorf("%s: exit %d, want %d\nstdout: %s\nstderr: %s", name, o.code, want, o.out, o.err)
		}
		if is && name == "29-subscribe-badfilter-accepted" { // the tool itself has let it in
			execute1(t, another(t, filepath.Join(root, "demo")), "INSERT INTO subscriptions VALUES('badf', 'true', 'type=message AND source=self')")
		}
		if want == 0 {
			recorded := strings.ReplaceAll(files[name+".stdout"], "/srv/claw-a/t", root)
			recorded = strings.ReplaceAll(recorded, "[object Object]", `{\"error\":\"x\"}`) // a content that is no string is not thrown away
			same(t, name, normal(recorded, root), normal(o.out, root))
		}
	}
	if n < 60 {
		t.Errorf("%d recorded cases", n)
	}
	// What the bad filter did not stop, and who holds no lock.
	if got := file(t, filepath.Join(root, "demo/run/inbox.lock")); !regexp.MustCompile(`^\d+$`).MatchString(got) {
		t.Errorf("lock %q is not a pid", got)
	}
	if log := file(t, filepath.Join(root, "demo/logs/thread.log")); !strings.Contains(log, `[INFO] dispatch: consumer=inbox spawned handler_cmd="agent run demo"`) ||
		!strings.Contains(log, "[INFO] push batch: count=3 last_id=5") || !strings.Contains(log, "[WARN] dispatch: consumer 'badf'") {
		t.Errorf("log:\n%s", log)
	}
}

// split reads a recorded command line: words with \ before what is special, and $'...'.
func split(line string) []string {
	var words []string
	word, in, raw := "", false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case raw && c == '\'':
			raw = false
		case raw && c == '\\':
			i++
			word += map[byte]string{'n': "\n", '\'': "'", '\\': "\\"}[line[i]]
		case raw:
			word += string(c)
		case strings.HasPrefix(line[i:], "$'"):
			in, raw, i = true, true, i+1
		case strings.HasPrefix(line[i:], "''"):
			in, i = true, i+1
		case c == '\\':
			i++
			in, word = true, word+string(line[i])
		case c == ' ' || c == '\n':
			if in {
				words = append(words, word)
			}
			word, in = "", false
		default:
			in, word = true, word+string(c)
		}
	}
	return words
}
