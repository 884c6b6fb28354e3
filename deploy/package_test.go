package deploy_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// A package has the programs of the archive, every unit with the programs where the package
// puts them, the license and the user of the units.
func TestPackage(t *testing.T) {
	text, err := os.ReadFile("package/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Contents []struct {
			Src  string `yaml:"src"`
			Dst  string `yaml:"dst"`
			Type string `yaml:"type"`
		} `yaml:"contents"`
		Scripts map[string]string `yaml:"scripts"`
	}
	// The line of the man pages is for those who have made some.
	if err := yaml.Unmarshal(regexp.MustCompile(`(?m)^#man`).ReplaceAll(text, nil), &file); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var dirs, links []string
	for _, c := range file.Contents {
		if c.Type == "symlink" {
			links = append(links, c.Dst+" "+c.Src)
			continue
		}
		if c.Type == "dir" {
			dirs = append(dirs, c.Dst)
			continue
		}
		name, ok := strings.CutPrefix(c.Src, "STAGE/")
		if !ok || path.Base(c.Dst) != strings.TrimSuffix(name, "/") && name != "LICENSE" && name != "man/" {
			t.Errorf("%s becomes %s", c.Src, c.Dst)
		}
		got[name] = path.Dir(c.Dst)
	}
	want := map[string]string{"LICENSE": "/usr/share/doc/theclaw", "theclaw.conf": "/usr/lib/sysusers.d", "man/": "/usr/share/man/man1"}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile(`(?m)^PROGRAMS := (.*)$`).FindSubmatch(makefile)
	if programs == nil {
		t.Fatal("the Makefile has no PROGRAMS")
	}
	for _, name := range append(strings.Fields(string(programs[1])), "theclaw-sandbox") {
		want[name] = "/usr/bin"
	}
	units, err := filepath.Glob("systemd/*.[st]*[er]")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		want[filepath.Base(unit)] = "/usr/lib/systemd/system"
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range regexp.MustCompile(`(?m)^ExecStart=(\S+)`).FindAllStringSubmatch(string(b), -1) {
			if name, ok := strings.CutPrefix(program[1], "/usr/local/bin/"); !ok || want[name] != "/usr/bin" {
				t.Errorf("%s starts %s, which no package puts anywhere", unit, program[1])
			}
		}
	}
	for name, dir := range want {
		if got[name] != dir && !(name == "man/" && got[name] == path.Dir("/usr/share/man/man1/")) {
			t.Errorf("%s is in %q, want %q", name, got[name], dir)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("nothing makes %v", got)
	}
	// S3-71: the other name of agentctl; /usr/bin/ac may be there already.
	if !slices.Equal(links, []string{"/usr/bin/agentclaw agentctl"}) {
		t.Errorf("the links are %q", links)
	}
	// Where the units look for keys.
	if !slices.Equal(dirs, []string{"/etc/theclaw"}) {
		t.Errorf("the directories are %q", dirs)
	}
	// The scripts can be read by the shell that runs them.
	for when, script := range file.Scripts {
		if out, err := exec.Command("sh", "-n", filepath.Join("..", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", when, err, out)
		}
	}
	if !slices.Contains(strings.Fields(string(text)), "recommends:") {
		t.Error("bubblewrap is not recommended")
	}
}
