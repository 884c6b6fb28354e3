package agents_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// The constants of the pages below docs/spec are those of testdata/spec-constants.txt and
// of the code.
func TestSpecConstants(t *testing.T) {
	c := config.Default()
	code := map[string]any{
		"lease ttl": lease.DefaultTTL, "lease margin at the default ttl": lease.Margin(lease.DefaultTTL),
		"lease kept without work": lease.GrantKeep, "crashes before a message is dead": store.MaxCrashAttempts,
		"retry.max_attempts": c.Retry.MaxAttempts, "retry.max_age": c.Retry.MaxAge,
		"deliver.max_attempts": c.Deliver.MaxAttempts, "deliver.max_age": c.Deliver.MaxAge,
		"run.concurrency": c.Run.Concurrency, "run.timeout": c.Run.Timeout,
		"bytes of one answer": thread.MaxAnswer, "events of one push": thread.MaxPush,
		"sandbox.mode": c.Sandbox.Mode, "bytes of one event": thread.MaxEvent, "bytes of one call": rpc.MaxMessage,
		"bytes of tool output kept in memory": sandbox.DefaultOutputCap, "hops of a message": channel.MaxHops,
		"quota.pair_per_minute": c.Quota.PairPerMinute, "filter of the outbound subscription": thread.OutboundFilter,
	}
	var rows []string
	for _, name := range []string{"reliability", "security", "contracts"} {
		_, table, ok := strings.Cut(readFile(t, "docs/spec/"+name+".md"), "| constant | value |\n|---|---|\n")
		if !ok {
			t.Errorf("%s has no table of constants", name)
		}
		for line := range strings.Lines(table) {
			rows = append(rows, strings.ReplaceAll(strings.Trim(line, "| \n"), " | ", "\t"))
		}
	}
	if want := strings.Split(strings.TrimSpace(readFile(t, "testdata/spec-constants.txt")), "\n"); !slices.Equal(rows, want) {
		t.Errorf("the pages have %q, testdata has %q", rows, want)
	}
	for _, row := range rows {
		name, value, _ := strings.Cut(row, "\t")
		if is := fmt.Sprint(code[name]); is != value {
			t.Errorf("%s is %s in the pages and %s in the code", name, value, is)
		}
		delete(code, name)
	}
	if len(code) > 0 {
		t.Errorf("not in the pages: %v", code)
	}
}

// The steps and invariants of docs/spec/reliability.md are those of the code's comments.
func TestSpecIDs(t *testing.T) {
	page := readFile(t, "docs/spec/reliability.md")
	ids := regexp.MustCompile(`\| (I\d+|T\d|D\d) \|`)
	invariants := readFile(t, "internal/invariant/doc.go")
	var want, got []string
	for _, m := range regexp.MustCompile(`(?:\t| )(I\d+)\s+[a-z]`).FindAllStringSubmatch(invariants, -1) {
		if !slices.Contains(want, m[1]) {
			want = append(want, m[1])
		}
	}
	for n := range 10 {
		want = append(want, fmt.Sprintf("T%d", n))
	}
	want = append(want, "D1", "D2", "D3", "D4")
	for _, row := range strings.Split(page, "\n") {
		for _, m := range ids.FindAllStringSubmatch(strings.ReplaceAll(row, "|", "||"), -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the page has %v, the code %v", got, want)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A comment of the Go source names no page of this repository that does not exist.
func TestCommentsNamePages(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b|\b(?:API|CONTRACTS|CORE|DESIGN|RELIABILITY|SECURITY|STYLE)\.md\b`)
	for _, r := range packages(t) {
		for _, f := range r.files {
			for _, c := range f.ast.Comments {
				for _, page := range named.FindAllString(c.Text(), -1) {
					if _, err := os.Stat(page); err != nil {
						t.Errorf("%s names %s, which does not exist", f.name, page)
					}
				}
			}
		}
	}
}
