package modeltest

import (
	"regexp"
	"slices"
	"strings"
)

// digests begins the system text of every request for a digest.
const digests = "You keep the memory of an agent."

var facts = regexp.MustCompile(`fact-[a-z0-9-]+`)

// Facts are the words of a text that begin with fact-, once each.
func Facts(text string) []string {
	found := facts.FindAllString(text, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// WantsDigest reports whether the request asks for a digest and not for a reply.
func (c Chat) WantsDigest() bool {
	return len(c.Messages) > 0 && strings.HasPrefix(c.Messages[0].Content, digests)
}

// Text is all that a request says.
func (c Chat) Text() string {
	var b strings.Builder
	for _, m := range c.Messages {
		b.WriteString(m.Content + "\n")
	}
	return b.String()
}

// FactModel answers as a model that has nothing but its context: its digests keep
// the facts (words that begin with fact-) and nothing else; asked "recall" it says
// which facts it can see; to all else it says ok.
func FactModel() Step {
	return Step{Repeat: true, Answer: func(c Chat) Step {
		seen := strings.Join(Facts(c.Text()), " ")
		switch {
		case c.WantsDigest() && seen == "":
			return Say("Nothing worth keeping was said in this conversation so far.")
		case c.WantsDigest():
			return Say("What was said and still holds: ", seen)
		case c.LastUser() == "recall":
			return Say("I know: ", seen)
		}
		return Say("ok")
	}}
}
