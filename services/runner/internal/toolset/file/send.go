package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxSend bounds a file that is sent, in bytes: the registry takes no larger media.
	maxSend = 20 << 20
	// maxCaption is the most characters below a file, which all platforms show.
	maxCaption = 1000
)

// sender is the tool that sends a file to the peer.
type sender struct{ *files }

// Spec implements [toolset.Tool].
func (*sender) Spec() toolset.Spec {
	return toolset.Spec{
		Name: nameSend,
		Description: "Sends a file of the working directory to the person you talk to at once, with a text below it if you give one. " +
			"At most 20 MiB. The person cannot open paths that you write: send the file.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"the file, relative to the working directory"},` +
			`"caption":{"type":"string","description":"a text of at most 1000 characters below it"}},` +
			`"required":["path"],"additionalProperties":false}`),
		Needs: toolset.Peer, Summary: toolset.Summarize("path"),
	}
}

// Class implements [toolset.Tool]: the message is written with the result, so a call without one has sent nothing.
func (*sender) Class(toolset.Call) toolset.Class { return toolset.Idempotent }

type sending struct{ Path, Caption string }

// Run implements [toolset.Tool].
func (s *sender) Run(ctx context.Context, c toolset.Call) toolset.Result {
	m, err := s.read(ctx, c)
	if err != nil {
		return toolset.Failed(err.Error() + ": nothing was sent")
	}
	result, err := json.Marshal(map[string]any{"sent": m.File.Name, "bytes": len(m.File.Data)})
	if err != nil {
		return toolset.Failed(err.Error())
	}
	return toolset.Result{JSON: result, Messages: []toolset.Message{m}}
}

// Sent implements [toolset.Sender].
func (*sender) Sent(arguments json.RawMessage) []toolset.Message {
	var a sending
	if json.Unmarshal(arguments, &a) != nil {
		return nil
	}
	return []toolset.Message{{Text: strings.TrimSpace(a.Caption)}}
}

// read makes the message of a call.
func (s *sender) read(ctx context.Context, c toolset.Call) (m toolset.Message, err error) {
	var a sending
	if err := parse(c, &a); err != nil {
		return m, err
	}
	if m.Text = strings.TrimSpace(a.Caption); utf8.RuneCountInString(m.Text) > maxCaption {
		return m, fmt.Errorf("the caption has more than %d characters: write them in your answer", maxCaption)
	}
	d, err := s.open(ctx, c)
	if err != nil {
		return m, err
	}
	defer func() { _ = d.Close() }() // it changes nothing
	name, info, err := d.find(a.Path)
	if err != nil {
		return m, err
	}
	if info.Size() > maxSend {
		return m, fmt.Errorf("%s has %d bytes, and at most %d MiB can be sent: make it smaller, or divide it", shown(name), info.Size(), maxSend>>20)
	}
	in, err := d.openFile(name, info)
	if err != nil {
		return m, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxSend+1))
	switch {
	case err != nil:
		return m, problem(name, err)
	case len(data) == 0:
		return m, errors.New(shown(name) + " is empty")
	case len(data) > maxSend:
		return m, fmt.Errorf("%s grows while it is read: try again when it is complete", shown(name))
	}
	m.File = &toolset.File{Name: path.Base(name), MIME: mimeOf(name, data), Data: data}
	return m, nil
}

// mimeOf is the type of a file, by its content, or else by its name.
func mimeOf(name string, data []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(data), ";")
	if kind != "application/octet-stream" && kind != "text/plain" && kind != "application/zip" {
		return kind
	}
	if named, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil && len(named) <= 127 {
		return strings.ToLower(named)
	}
	return kind
}
