// Command mcp is an MCP server with two tools, as an example of one and of how agents use them:
//
//	echo   answers what it gets; it changes nothing, and says so
//	note   adds a line to notes.txt in the directory where it was started
//
// With -fail N it ends at its N-th call, to see what the runtime makes of that: a call of echo is made again
// on the next process, and a call of note is in doubt. docs/tools.md has the commands.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type in struct {
	Text string `json:"text" jsonschema:"the text"`
}

func main() {
	fail := flag.Int64("fail", 0, "end at the `N`-th call; 0: never")
	flag.Parse()
	if err := server(*fail).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func server(fail int64) *mcp.Server {
	var calls atomic.Int64
	// begin counts a call, and ends the program where it shall end.
	begin := func() {
		if calls.Add(1) == fail {
			fmt.Fprintf(os.Stderr, "call %d ends this program\n", fail)
			os.Exit(1)
		}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Answers what it gets.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			begin()
			return said(in.Text), nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "note", Description: "Adds a line to the notes."},
		func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			if err := add(in.Text); err != nil {
				return nil, nil, err
			}
			begin()
			return said("noted"), nil, nil
		})
	return s
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func add(text string) error {
	f, err := os.OpenFile("notes.txt", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
