//go:build proof

package pages_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/pages"
)

// names lists the pages: those in the root of the tree, and every page of docs.
func names(t *testing.T, root string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "*.md"))
	check(t, err)
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(name) == ".md" {
			found = append(found, name)
		}
		return err
	})
	check(t, err)
	for i, name := range found {
		found[i], err = filepath.Rel(root, name)
		check(t, err)
	}
	slices.Sort(found)
	return found
}

// snapshot copies what git knows or could add, and the programs of .bin.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	tree := t.TempDir()
	files := exec.Command("sh", "-c", `git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
		tar -c --null --ignore-failed-read --warning=no-failed-read -T - | tar -x -p -C "$1" &&
		mkdir "$1/.bin" && cd .bin && cp -a agentctl agent agentd theclaw-sandbox thread ac agentclaw "$1/.bin/"`, "sh", tree)
	files.Dir = root
	if out, err := files.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
	check(t, os.Symlink(filepath.Join(root, packages), filepath.Join(tree, packages)))
	return tree
}

// packages are those of the TypeScript client, which a page has no network to fetch.
const packages = "examples/typescript/node_modules"

// needClients is what the clients in Python and TypeScript need.
func needClients(t *testing.T, root string) {
	t.Helper()
	for program, debian := range map[string]string{
		"node": "nodejs", "npm": "npm", "protoc": "protobuf-compiler", "grpc_python_plugin": "protobuf-compiler-grpc",
	} {
		need.Program(t, program, debian)
	}
	if exec.Command("python3", "-c", "import grpc").Run() != nil && exec.Command("/usr/bin/python3", "-c", "import grpc").Run() != nil {
		need.Missing(t, "a Python with gRPC", "install the packages python3-grpcio and python3-protobuf")
	}
	if _, err := os.Stat(filepath.Join(root, packages)); err != nil {
		need.Missing(t, "the npm packages of the TypeScript client", "run `make examples`")
	}
}

// TestPages runs the blocks of every page; PAGES=regexp chooses some.
func TestPages(t *testing.T) {
	root, err := filepath.Abs("../..")
	check(t, err)
	need.Program(t, "make", "make")
	need.Program(t, "ip", "iproute2")
	if _, err := os.Stat(filepath.Join(root, ".bin/agentd")); err != nil {
		need.Missing(t, "the programs in .bin", "run `make docs-run`, or `make build` first")
	}
	chosen, err := regexp.Compile(os.Getenv("PAGES"))
	check(t, err)
	heavy := os.Getenv("HEAVY") == "1"
	tree := snapshot(t, root)
	var mu sync.Mutex
	var sum result
	count := 0
	t.Run("pages", func(t *testing.T) {
		for _, name := range names(t, root) {
			if !chosen.MatchString(name) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			check(t, err)
			blocks, err := pages.Parse(string(text))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			count++
			t.Run(strings.TrimSuffix(strings.ReplaceAll(name, "/", "-"), ".md"), func(t *testing.T) {
				t.Parallel()
				if strings.Contains(string(text), packages[:strings.LastIndex(packages, "/")]) {
					needClients(t, root)
				}
				r := runPage(t, name, blocks, tree, root, heavy)
				mu.Lock()
				defer mu.Unlock()
				sum.blocks += r.blocks
				sum.ran += r.ran
				sum.failed += r.failed
				sum.setups += r.setups
				sum.compared += r.compared
				sum.shown += r.shown
				sum.listed = append(sum.listed, r.listed...)
			})
		}
	})
	if count == 0 {
		t.Error("there is no page")
	}
	drill.Line("docs-run pages=%d blocks=%d run=%d failed_as_intended=%d shown=%d setups=%d outputs_compared=%d",
		count, sum.blocks-sum.setups, sum.ran, sum.failed, sum.shown, sum.setups, sum.compared)
	slices.Sort(sum.listed)
	for _, l := range sum.listed {
		drill.Line("  shown %s", l)
	}
}
