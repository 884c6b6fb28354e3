package agents_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// README.zh-CN.md has the commands and outputs of README.md, with the same marks and hidden
// commands, in the same order below corresponding headings.
func TestReadmes(t *testing.T) {
	parts := regexp.MustCompile("(?ms)^```.*?^```$|^<!-- run\n.*?^-->$|^#+ ")
	var pages [2][]string
	for i, name := range []string{"README.md", "README.zh-CN.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = parts.FindAllString(string(b), -1)
	}
	if len(pages[0]) < 40 {
		t.Fatalf("README.md has %d blocks and headings", len(pages[0]))
	}
	for i := range min(len(pages[0]), len(pages[1])) {
		if pages[0][i] != pages[1][i] {
			t.Fatalf("part %d: README.md has\n%s\nREADME.zh-CN.md has\n%s", i, pages[0][i], pages[1][i])
		}
	}
	if !slices.Equal(pages[0], pages[1]) {
		t.Errorf("README.md has %d blocks and headings, README.zh-CN.md %d", len(pages[0]), len(pages[1]))
	}
}
