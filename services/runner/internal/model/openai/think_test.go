package openai

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func split(pieces ...string) (text, thinking string) {
	var s thinkSplitter
	for _, p := range pieces {
		a, b := s.Add(p)
		text, thinking = text+a, thinking+b
	}
	a, b := s.End()
	return text + a, thinking + b
}

var cases = []struct{ answer, text, thinking string }{
	{"", "", ""},
	{"plain", "plain", ""},
	{"  plain ", "  plain ", ""},
	{"<think>hm</think>42", "42", "hm"},
	{"\n<think>\nhm\n</think>\n\n42\n", "42\n", "\nhm\n"},
	{"<THINK>hm</Think>42", "42", "hm"},
	{"<thinking>a</thinking><think>b</think> c", "c", "ab"},
	{"<thinking>a</think>b</thinking>c", "c", "a</think>b"},
	{"<thought>ü 你好</thought>ö", "ö", "ü 你好"},
	{"<think>never closed </thin", "", "never closed </thin"},
	{"<think></think>x", "x", ""},
	{"<think>a<think>b</think>c</think>", "c</think>", "a<think>b"},
	{"the tag <think>x</think> stays", "the tag <think>x</think> stays", ""},
	{"`<think>` is a tag", "`<think>` is a tag", ""},
	{"<thin", "<thin", ""},
	{"<thinker>x", "<thinker>x", ""},
	{"a </think> b", "a </think> b", ""},
	{"<think>a</think>   ", "", "a"},
}

// S1-48: wherever the answer is cut, by bytes, into two and into three pieces,
// text and thinking are the same.
func TestAllSplits(t *testing.T) {
	n := 0
	for _, c := range cases {
		check := func(pieces ...string) {
			n++
			if text, thinking := split(pieces...); text != c.text || thinking != c.thinking {
				t.Errorf("%q: text %q, thinking %q", pieces, text, thinking)
			}
		}
		check(c.answer)
		check(strings.Split(c.answer, "")...)
		for i := range len(c.answer) + 1 {
			for j := i; j <= len(c.answer); j++ {
				check(c.answer[:i], c.answer[i:j], c.answer[j:])
			}
		}
	}
	t.Logf("%d splits of %d answers", n, len(cases))
}

// Any answer in any pieces.
func TestPieces(t *testing.T) {
	part := rapid.SampledFrom([]string{"<think>", "</think>", "<thinking>", "</thinking>", "<", "</", "think", ">", " ", "\n", "a", "ü", "<THINK>", "```"})
	rapid.Check(t, func(t *rapid.T) {
		answer := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
		text, thinking := split(answer)
		var pieces []string
		for rest := answer; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "length")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if a, b := split(pieces...); a != text || b != thinking {
			t.Fatalf("whole: %q, %q; in %q: %q, %q", text, thinking, pieces, a, b)
		}
		if !strings.HasSuffix(answer, text) && thinking+text != answer {
			t.Fatalf("text %q is not the end of %q", text, answer)
		}
	})
}

// Text is not held back longer than a tag could be.
func TestTextComesAtOnce(t *testing.T) {
	var s thinkSplitter
	for _, piece := range []string{"I", " th", "ink <", "think>"} {
		if text, _ := s.Add(piece); text != piece {
			t.Errorf("%q became %q", piece, text)
		}
	}
	s = thinkSplitter{}
	if text, thinking := s.Add("<think>hm"); text != "" || thinking != "hm" {
		t.Errorf("thinking is held back: %q %q", text, thinking)
	}
}
