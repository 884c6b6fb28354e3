// Package web implements the tools that use the network: web_fetch reads a page,
// http_request calls an HTTP API, web_search asks a search provider.
//
// It promises: a request of web_fetch and http_request reaches public addresses and those
// that the owner permits, and each redirect is checked again (package netguard); a proxy of
// the environment is not used, and no cookie is stored; what is read of a body, after it is
// decompressed, is at most [MaxBody] bytes, and what a model gets of it is cut to the limit
// in characters; a page that cannot be converted in bounded time is returned as plain text.
//
// A request is made again after 2 s and 4 s when the connection is refused, when there is
// no response in time, and for status 429 and 5xx; POST and PATCH only when nothing was
// sent (S3-12).
//
// Everything that others wrote stands, in the result, between the members external and
// external_end. Both hold a random mark that the others cannot know.
//
// A header of http_request may name a secret of the settings: its value is put in here, for the hosts of that
// secret, and taken out of what the server returns. The model, the journal and the sandbox have its name only.
//
// It runs no scripts of pages.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Options are what the settings give.
type Options struct {
	Fetch, HTTP Limits
	Search      Search
	Secrets     secret.Source
	// Wait waits before a repeated request; nil: [pause.For].
	Wait func(ctx context.Context, d time.Duration) error
}

// Limits bound the requests of one tool.
type Limits struct {
	// MaxChars is how many characters of a text a model gets; 0: 10,000 for web_fetch,
	// 50,000 for http_request.
	MaxChars int
	// Timeout of one attempt, redirects and body included; 0: 10 s for web_fetch, 30 s for
	// http_request.
	Timeout time.Duration
	// Allow lists addresses that may be reached although they are not public.
	Allow []netip.Prefix
}

// of are the limits that the settings of a turn give, with these for what they do not. An address
// that cannot be read permits nothing.
func (l Limits) of(set *registrypb.WebLimits) Limits {
	if n := set.GetMaxChars(); n > 0 {
		l.MaxChars = int(n)
	}
	if t := set.GetTimeout().AsDuration(); t > 0 {
		l.Timeout = t
	}
	l.Allow = slices.Clone(l.Allow)
	for _, text := range set.GetAllowPrivate() {
		if p, err := netip.ParsePrefix(text); err == nil {
			l.Allow = append(l.Allow, p)
		}
	}
	return l
}

func (l Limits) withDefaults(chars int, timeout time.Duration) Limits {
	if l.MaxChars == 0 {
		l.MaxChars = chars
	}
	if l.Timeout == 0 {
		l.Timeout = timeout
	}
	return l
}

// New returns the tools.
func New(o Options) []toolset.Tool {
	o.Fetch = o.Fetch.withDefaults(10_000, 10*time.Second)
	o.HTTP = o.HTTP.withDefaults(50_000, 30*time.Second)
	return []toolset.Tool{newFetch(o), newRequester(o), newSearch(o)}
}

// encode is a result without the escapes for HTML, which would make a page hard to read.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // our structs of strings always encode
		return toolset.Problem("the result cannot be encoded")
	}
	return bytes.TrimSpace(b.Bytes())
}

// maxEnvelope is how long a result may be without its text, in characters of JSON: one with more, such as of large
// headers, is shortened as any other long result.
const maxEnvelope = 4096

// fit is the result of a call whose text is at most chars characters from its beginning, or what the settings allow for
// any result where that is less, and fewer where the result would be larger than [toolset.MaxResult]. A text of which
// a part is left out is kept completely, between the marks of external content, in a file that result is given with
// the text.
func fit(c toolset.Call, text, begin, end string, chars int, result func(text, file string) any) toolset.Result {
	text = toolset.WithoutPictures(text)
	file, written := "", false
	complete := func(string) string {
		if !written {
			file, written = toolset.Complete(c, begin+"\n"+text+"\n"+end+"\n"), true
		}
		return file
	}
	most := toolset.ResultChars(c.Place.Config)
	shorten := func() string {
		if most < chars {
			return toolset.Ends(text, most, complete)
		}
		head, left := cut(text, chars)
		if left > 0 {
			head += "\n" + toolset.LeftOut(left, complete(text))
		}
		return head
	}
	bounded := utf8.RuneCount(encode(result("", ""))) <= maxEnvelope
	for {
		shown := shorten() // which sets file
		b := encode(result(shown, file))
		if len(b) <= toolset.MaxResult || chars == 0 {
			return toolset.Result{JSON: b, Bounded: bounded}
		}
		chars, most = chars/2, most/2
	}
}

// cut returns the first characters of a text, and how many are behind them.
func cut(text string, chars int) (head string, left int) {
	n := 0
	for at := range text {
		if n == chars {
			return text[:at], utf8.RuneCountInString(text[at:])
		}
		n++
	}
	return text, 0
}

// clean is valid UTF-8 without control characters, except for those that divide text.
func clean(s string) string {
	s, _ = boundary.Text(s, 0)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// oneLine is a short text, such as a title: spaces are one, at most 300 characters.
func oneLine(s string) string {
	head, _ := cut(strings.Join(strings.Fields(clean(s)), " "), 300)
	return head
}
