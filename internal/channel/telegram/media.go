package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/theclaw/agents/internal/channel"
)

// media are the files of a message.
type media struct {
	Photo     []file `json:"photo"` // the same in several sizes
	Document  *file  `json:"document"`
	Voice     *file  `json:"voice"`
	Audio     *file  `json:"audio"`
	Video     *file  `json:"video"`
	VideoNote *file  `json:"video_note"`
}

type file struct {
	ID     string `json:"file_id"`
	Size   int64  `json:"file_size"`
	Name   string `json:"file_name"`
	MIME   string `json:"mime_type"`
	Width  int64  `json:"width"`
	Height int64  `json:"height"`
}

type sticker struct {
	file
	Emoji    string `json:"emoji"`
	Animated bool   `json:"is_animated"` // vectors in a format of its own
	Video    bool   `json:"is_video"`
}

// attachments lists the files of a message. A moving picture is in Document as well.
func (c *client) attachments(m *message, token string) (list []channel.Attachment) {
	add := func(kind string, f file, mime, name string) {
		if f.ID == "" {
			return
		}
		list = append(list, channel.Attachment{
			Type: kind, MIME: cmp.Or(f.MIME, mime), Name: cmp.Or(f.Name, name), Size: max(f.Size, 0),
			Open: func(ctx context.Context, limit int64) (io.ReadCloser, error) { return c.open(ctx, token, f.ID, limit) },
		})
	}
	var largest file
	for _, f := range m.Photo {
		if f.ID != "" && f.Width*f.Height >= largest.Width*largest.Height {
			largest = f
		}
	}
	add("image", largest, "image/jpeg", "photo.jpg")
	for _, f := range []struct {
		file             *file
		kind, mime, name string
	}{
		{m.Document, "file", "", "document"},
		{m.Voice, "voice", "audio/ogg", "voice.ogg"},
		{m.Audio, "audio", "audio/mpeg", "audio.mp3"},
		{m.Video, "video", "video/mp4", "video.mp4"},
		{m.VideoNote, "video", "video/mp4", "video.mp4"},
	} {
		if f.file == nil {
			continue
		}
		kind := f.kind
		if kind == "file" && strings.HasPrefix(f.file.MIME, "image/") {
			kind = "image"
		}
		add(kind, *f.file, f.mime, f.name)
	}
	if s := m.Sticker; s != nil {
		switch {
		case s.Animated:
			add("file", s.file, "application/x-tgsticker", "sticker.tgs")
		case s.Video:
			add("video", s.file, "video/webm", "sticker.webm")
		default:
			add("image", s.file, "image/webp", "sticker.webp")
		}
	}
	return list
}

// open begins to fetch a file of at most limit bytes. Its address holds the token, and is valid
// for an hour.
func (c *client) open(ctx context.Context, token, id string, limit int64) (io.ReadCloser, error) {
	var f struct {
		Path string `json:"file_path"`
		Size int64  `json:"file_size"`
	}
	err := c.call(ctx, token, "getFile", struct {
		ID string `json:"file_id"`
	}{id}, &f)
	if r, ok := errors.AsType[*refusal](err); ok && r.says("file is too big") {
		return nil, fmt.Errorf("%w: the platform hands out 20 MiB at most", channel.ErrTooLarge)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetch a file: %w", err)
	case f.Size > limit:
		return nil, fmt.Errorf("%w of %d bytes", channel.ErrTooLarge, limit)
	case f.Path == "" || path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || strings.HasPrefix(f.Path, ".."):
		return nil, &failure{method: "getFile", why: "the answer has no path below the Bot API"}
	}
	res, err := c.do(ctx, token, "file", "/file/bot"+token+"/"+(&url.URL{Path: f.Path}).EscapedPath(), nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetch a file: %w", err)
	case res.StatusCode != http.StatusOK:
		_ = res.Body.Close() // nothing of it is used
		return nil, fmt.Errorf("fetch a file: %w", &refusal{method: "file", status: res.StatusCode})
	}
	return channel.File(res.Body, res.ContentLength, limit)
}
