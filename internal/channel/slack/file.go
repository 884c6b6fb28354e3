package slack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/theclaw/agents/internal/channel"
)

// publicFiles is the host that files of the public API come from.
const publicFiles = "files.slack.com"

type file struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Title    string `json:"title"`
	MIME     string `json:"mimetype"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`
	Subtype  string `json:"subtype"`
	Private  string `json:"url_private"`
	Download string `json:"url_private_download"`
}

// attachments lists the files of a message. One that the platform does not hold cannot be fetched.
func (c *client) attachments(files []file, token string) (list []channel.Attachment) {
	for _, f := range files {
		if f.Mode == "tombstone" || f.Mode == "hidden_by_limit" {
			continue // it was deleted
		}
		a := channel.Attachment{Type: kindOf(f), MIME: f.MIME, Name: f.Name, Size: max(f.Size, 0)}
		if a.Name == "" {
			a.Name = f.Title
		}
		address := f.Download
		if address == "" {
			address = f.Private
		}
		if f.Mode != "external" && c.servesFile(address) {
			a.Open = func(ctx context.Context, limit int64) (io.ReadCloser, error) {
				return c.open(ctx, token, address, f.MIME, limit)
			}
		}
		list = append(list, a)
	}
	return list
}

func kindOf(f file) string {
	switch kind, _, _ := strings.Cut(f.MIME, "/"); {
	case f.Subtype == "slack_audio":
		return "voice"
	case kind == "image" || kind == "audio" || kind == "video":
		return kind
	}
	return "file"
}

// servesFile reports whether the token may be sent to an address of a file.
func (c *client) servesFile(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil {
		return false
	}
	api, err := url.Parse(c.api)
	return err == nil && u.Scheme == api.Scheme && (u.Host == api.Host || c.api == publicAPI && u.Host == publicFiles)
}

// open begins to fetch a file of at most limit bytes.
func (c *client) open(ctx context.Context, token, address, mime string, limit int64) (io.ReadCloser, error) {
	res, err := c.do(ctx, token, "file", http.MethodGet, address, "", "")
	if err != nil {
		return nil, fmt.Errorf("fetch a file: %w", err)
	}
	switch {
	case res.StatusCode != http.StatusOK:
		err = fmt.Errorf("fetch a file: %w", &refusal{method: "file", status: res.StatusCode})
	case strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") && !strings.HasPrefix(mime, "text/html"):
		err = errors.New("fetch a file: the platform wants a login: add the scope files:read to the app")
	default:
		return channel.File(res.Body, res.ContentLength, limit)
	}
	_ = res.Body.Close() // nothing of it is used
	return nil, err
}
