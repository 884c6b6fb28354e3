package markup

import "strings"

// Code is Markdown that shows a text of one line as it is, and as nothing else.
func Code(s string) string {
	mark := strings.Repeat("`", longest(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return mark + s + mark
}

// Fenced is Markdown that shows the lines of a text as they are, and as nothing else.
func Fenced(s string) string {
	fence := strings.Repeat("`", max(longest(s)+1, 3))
	return fence + "\n" + s + "\n" + fence
}

// longest is the length of the longest run of backticks.
func longest(s string) (most int) {
	n := 0
	for _, r := range s {
		if n++; r != '`' {
			n = 0
		}
		most = max(most, n)
	}
	return most
}
