package mcp

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S3-59: structured content is shown where a result has no text, also next to an image, and not where it has one.
func TestStructuredContent(t *testing.T) {
	image, words := &sdk.ImageContent{Data: []byte("12345"), MIMEType: "image/png"}, &sdk.TextContent{Text: "37 of them"}
	for name, c := range map[string]struct {
		content []sdk.Content
		shown   bool
	}{
		"alone":           {nil, true},
		"with an image":   {[]sdk.Content{image}, true},
		"with empty text": {[]sdk.Content{&sdk.TextContent{}}, true},
		"with a text":     {[]sdk.Content{image, words}, false},
	} {
		t.Run(name, func(t *testing.T) {
			web := &tool{launch: launch{server: &registrypb.McpServer{Name: "web"}}}
			r := web.result(&sdk.CallToolResult{Content: c.content, StructuredContent: map[string]any{"count": 37}}, &session{})
			if strings.Contains(r.Text, `{"count":37}`) != c.shown {
				t.Errorf("%s", r.Text)
			}
		})
	}
}
