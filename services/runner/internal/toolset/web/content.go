package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// read is the content of a response as text. title is the title of a page.
func read(r response) (title, text string) {
	kind := mediaType(r)
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		title, text = article(decode(r), r.url)
		return oneLine(title), clean(text)
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		var indented bytes.Buffer
		if json.Indent(&indented, []byte(decode(r)), "", "  ") == nil && indented.Len() <= 4*MaxBody {
			return "", clean(indented.String())
		}
		return "", content(r)
	}
	return "", content(r)
}

// content is a body as it is, when it is text; else its type and size.
func content(r response) string {
	if len(r.body) == 0 {
		return ""
	}
	kind := mediaType(r)
	if text := decode(r); textual(kind) && !strings.ContainsRune(text, 0) {
		return clean(text)
	}
	size := fmt.Sprintf("%d bytes", len(r.body))
	if r.more {
		size = "more than " + size
	}
	return fmt.Sprintf("[no text: %s, %s]", oneLine(kind), size)
}

// mediaType is the type of a body without its parameters, found by its first bytes where
// the server names none.
func mediaType(r response) string {
	kind, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(r.body))
	}
	return kind
}

// textual reports whether a type is read as text.
func textual(kind string) bool {
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+json") {
		return true
	}
	switch strings.TrimPrefix(strings.TrimPrefix(kind, "application/"), "x-") {
	case "json", "ndjson", "jsonlines", "xml", "javascript", "yaml", "toml", "sh", "www-form-urlencoded", "graphql", "sql":
		return true
	}
	return false
}

// decode is a body in UTF-8: by its byte order mark, the header of the server, or the meta
// element of a page; without these, as UTF-8 where it is that.
func decode(r response) string {
	encoding, name, certain := charset.DetermineEncoding(r.body, r.header.Get("Content-Type"))
	if !certain && isUTF8(r.body) && !(name == "iso-2022-jp" && bytes.ContainsRune(r.body, '\x1b')) { // which is in 7 bits
		name = "utf-8"
	}
	body := bytes.TrimPrefix(r.body, []byte("\xef\xbb\xbf"))
	if name == "utf-8" {
		return string(body)
	}
	text, err := encoding.NewDecoder().Bytes(body)
	if err != nil {
		return string(body) // clean replaces what is not UTF-8
	}
	return string(text)
}

// isUTF8 reports whether a body is UTF-8, except for a last character that was cut.
func isUTF8(b []byte) bool {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				b = b[:len(b)-n]
			}
			break
		}
	}
	return utf8.Valid(b)
}
