package channeltest

import (
	"bytes"
	"context"
	"io"

	"github.com/theclaw/agents/internal/channel"
)

// Document is a file to send; each reading of it is counted.
func Document(name, mime string, content []byte, opened *int) *channel.Document {
	return &channel.Document{Name: name, MIME: mime, Size: int64(len(content)), Open: func(context.Context) (io.ReadCloser, error) {
		*opened++
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}
