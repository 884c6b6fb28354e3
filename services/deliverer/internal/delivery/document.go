package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync/atomic"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
)

var mediaRule = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// attach gives the message a file of its event. Where the channel takes none, or none of this size, a line of the text
// names it. A message has one file; further ones are lines as well.
func (w *target) attach(files []channel.SentFile, media Media) {
	sends, ok := w.channel.(channel.Documenter)
	for _, a := range files {
		name, sha256 := boundary.Name(a.Name), mediaRule.FindStringSubmatch(a.Media)
		switch {
		case w.message.Document != nil, !ok, media == nil, sha256 == nil, a.Size <= 0:
			w.message.Text += fmt.Sprintf("\n[the file %s, %d bytes, cannot be sent here]", name, a.Size)
		case a.Size > sends.Documents().Max:
			w.message.Text += fmt.Sprintf("\n[the file %s has %d bytes; at most %d can be sent here]", name, a.Size, sends.Documents().Max)
		default:
			id, size, broken := w.message.AgentID, a.Size, new(atomic.Pointer[channel.Error])
			w.broken = broken
			w.message.Document = &channel.Document{Name: name, MIME: channel.Clean(a.MIME, 127), Size: size, Open: func(ctx context.Context) (io.ReadCloser, error) {
				in, err := media(ctx, id, sha256[1], size)
				if err != nil {
					return nil, err
				}
				return content{in, broken}, nil
			}}
		}
	}
}

// content is the data of a file. It keeps the error of a read: a channel sees only that its request was not written.
type content struct {
	io.ReadCloser
	broken *atomic.Pointer[channel.Error]
}

// Read implements [io.Reader].
func (c content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if e, ok := errors.AsType[*channel.Error](err); ok {
		c.broken.Store(e)
	}
	return n, err
}
