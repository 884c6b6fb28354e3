package toolset

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/theclaw/agents/internal/sandbox"
)

// A picture in an output is megabytes that no one reads: as a data URL, or as a
// JSON value of the kinds models use.
var (
	dataURL = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`data:(?:image|audio|video)/[a-zA-Z0-9.+-]+;base64,[A-Za-z0-9+/_=-]{64,}(?:\r?\n[A-Za-z0-9+/_=-]{60,})*`)
	})
	blob = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`("(?:data|b64_json|image|image_base64)"\s*:\s*")[A-Za-z0-9+/_=-]{512,}"`)
	})
	solid = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9+/_-]{512,}={0,2}`) })
)

// WithoutPictures is a text with a note where a picture was (S1-51).
func WithoutPictures(s string) string {
	s = dataURL().ReplaceAllStringFunc(s, note)
	return blob().ReplaceAllStringFunc(s, func(m string) string {
		return blob().FindStringSubmatch(m)[1] + note(m) + `"`
	})
}

func note(m string) string { return fmt.Sprintf("[picture left out, %d bytes]", len(m)) }

// OutputText is a piece of output as a watcher may read it. A piece may hold a part of a
// picture only, so that all that looks like one is left out.
func OutputText(b []byte) string {
	return solid().ReplaceAllStringFunc(WithoutPictures(sandbox.Text(b)), note)
}
