// Package logfile is a type of channel that appends replies to a file. It is an example: all
// of a channel but its line in internal/channel/catalog/catalog.go.
package logfile

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/theclaw/agents/internal/channel"
)

// Type is the file as a type of channel; its url is file: and a path.
var Type = channel.Type{
	Name: "logfile",
	Check: func(d channel.Definition) (attribute, problem string) {
		if !strings.HasPrefix(d.URL, "file:/") {
			return "url", "url wants file: and a path"
		}
		return "", ""
	},
	Open: func(name string, d channel.Definition, _ channel.Deps) (channel.Channel, error) {
		return file{name, strings.TrimPrefix(d.URL, "file:")}, nil
	},
}

type file struct{ name, path string }

// Name implements [channel.Channel].
func (f file) Name() string { return f.name }

// Guarantee implements [channel.Channel]: a file knows no key.
func (file) Guarantee() channel.Guarantee { return channel.None }

// Send implements [channel.Channel].
func (f file) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
	to, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return channel.Receipt{}, &channel.Error{Class: channel.Failed, What: "the file cannot be opened", Err: err}
	}
	defer func() { _ = to.Close() }()
	if _, err := fmt.Fprintf(to, "%s\n", m.Text); err != nil {
		return channel.Receipt{}, &channel.Error{Class: channel.Failed, InDoubt: true, What: "the file cannot be written", Err: err}
	}
	return channel.Receipt{}, nil
}
