package agents_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// wordsOf are the words in the first column of the first table behind a heading.
func wordsOf(t *testing.T, path, heading string) (words []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n"+heading+"\n")
	_, text, _ = strings.Cut(text, "\n| word |")
	text, _, _ = strings.Cut(text, "\n\n")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if first := strings.TrimPrefix(cells[0], "| "); len(cells) > 1 && first != cells[0] {
			words = append(words, strings.Split(first, ", ")...)
		}
	}
	return words
}

// The page for contributors says that the glossary has all of its nouns.
func TestDocsGlossary(t *testing.T) {
	all := wordsOf(t, "docs/architecture.md", "## Glossary")
	main := wordsOf(t, "CONTRIBUTING.md", "## The main nouns")
	if len(all) < 50 || len(main) < 10 {
		t.Fatalf("%d and %d words: this test does not find the tables any more", len(all), len(main))
	}
	for _, w := range main {
		if !slices.Contains(all, w) {
			t.Errorf("the glossary has no %q", w)
		}
	}
	for i, w := range all {
		if slices.Contains(all[:i], w) {
			t.Errorf("the glossary has %q twice", w)
		}
	}
}
