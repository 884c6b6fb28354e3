package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// BenchmarkPage makes text of a page of 216 KB, and of one that is nested 50,000 deep.
func BenchmarkPage(b *testing.B) {
	var page strings.Builder
	page.WriteString("<html><head><title>A page</title></head><body><article><h1>A page</h1>")
	for n := 0; page.Len() < 216_000; n++ {
		fmt.Fprintf(&page, "<p>Paragraph %d has <a href=\"/p/%d\">a link</a>, <b>bold text</b>, and enough words for an article, as pages have.</p><ul><li>one</li><li>two</li></ul>", n, n)
	}
	page.WriteString("</article></body></html>")
	at, err := url.Parse("https://example.org/page")
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"article": page.String(), "nested": strings.Repeat("<div>", 50_000) + "deep" + strings.Repeat("</div>", 50_000)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, text := article(text, at); text == "" {
					b.Fatal("nothing is left")
				}
			}
		})
	}
}
