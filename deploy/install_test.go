//go:build proof

package deploy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
)

// block is a command block of a page: what is done with it, why it is not run, and what it
// prints.
type block struct {
	kind, text, why, prints string
	line                    int
}

var shownWhy = regexp.MustCompile(`^<!-- shown: (.+) -->$`)

// blocks reads the command blocks of a page. A block of text after one that is run is what
// that prints.
func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	why, fence := "", ""
	for i, line := range strings.Split(string(b), "\n") {
		switch {
		case fence != "" && line == "```":
			switch {
			case fence != "text":
				all = append(all, *open)
			case len(all) > 0:
				all[len(all)-1].prints = open.text
			}
			why, fence = "", ""
		case fence != "":
			open.text += line + "\n"
		case strings.HasPrefix(line, "```"):
			fence = strings.TrimPrefix(line, "```")
			open = &block{kind: strings.TrimPrefix(fence, "sh "), why: why, line: i + 1}
			if fence != "text" && fence != "sh run" && fence != "sh fails" && fence != "sh shown" {
				t.Errorf("%s:%d: a block is %q, and not sh run, sh fails, sh shown or text", page, i+1, fence)
			}
			if fence == "sh shown" && why == "" {
				t.Errorf("%s:%d: the reason why it is not run is missing", page, i+1)
			}
		default:
			if m := shownWhy.FindStringSubmatch(line); m != nil {
				why = m[1]
			} else if line != "" {
				why = ""
			}
		}
	}
	return all
}

// release puts archives of the programs here into a directory, as `make release` does.
func release(t *testing.T, dir string, versions ...string) {
	t.Helper()
	run := func(where string, name string, args ...string) {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir, c.Env = where, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if where == ".." {
			c.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	for i, version := range versions {
		stage := t.TempDir()
		for _, program := range []string{"agentctl", "agentd", "agent", "theclaw-sandbox"} {
			run("..", "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags", "-s -w -X main.version="+version, "-o", stage+"/", "./cmd/"+program)
		}
		name := "theclaw-" + version + "-linux-amd64.tar.gz"
		run("../tools", "go", "run", "-tags=", "./archive", "-out", filepath.Join(dir, name), stage)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 { // each release has its own sums
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b), name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The command blocks of docs/install.md work, one after the other, on a machine that has
// nothing but the archives: an empty directory and an empty environment.
func TestInstallPage(t *testing.T) {
	need.Namespaces(t, "--user", "--mount") // a tool is run in the sandbox
	all := blocks(t, "../docs/install.md")
	dir := t.TempDir()
	release(t, dir, "v1.0.0", "v1.1.0")
	out := t.TempDir()
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	count := map[string]int{}
	for i, b := range all {
		count[b.kind]++
		at := filepath.Join(out, fmt.Sprint(i))
		switch b.kind {
		case "run":
			fmt.Fprintf(&script, "echo 'line %d' >'%s/at'\n{\n%s} >'%s'\n", b.line, out, b.text, at)
		case "fails":
			fmt.Fprintf(&script, "echo 'line %d, which should fail' >'%s/at'\nif (\n%s) >'%s' 2>&1; then exit 99; fi\n", b.line, out, b.text, at)
		case "shown":
			t.Logf("line %d is shown: %s", b.line, b.why)
		}
	}
	c := exec.Command("bash", "-c", script.String())
	c.Dir, c.Env = dir, []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
	if text, err := c.CombinedOutput(); err != nil {
		at, _ := os.ReadFile(filepath.Join(out, "at"))
		t.Fatalf("%s: %v\n%s", bytes.TrimSpace(at), err, text)
	}
	for i, b := range all {
		got, _ := os.ReadFile(filepath.Join(out, fmt.Sprint(i)))
		if b.kind == "run" && trimmed(string(got)) != trimmed(b.prints) {
			t.Errorf("line %d prints:\n%s\nthe page says:\n%s", b.line, got, b.prints)
		}
	}
	if count["run"] < 6 || count["fails"] < 1 {
		t.Errorf("only %v were found", count)
	}
	fmt.Printf("install page run=%d fails=%d shown=%d\n", count["run"], count["fails"], count["shown"])
}

// trimmed is a text without blanks at the ends of its lines.
func trimmed(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
