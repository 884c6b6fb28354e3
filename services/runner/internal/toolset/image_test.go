package toolset_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// encoded is an image of 3 x 2 pixels.
func encoded(t *testing.T, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// header is the beginning of a png that says how large it is.
func header(width, height uint32) []byte {
	chunk := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("IHDR"), width), height)
	chunk = append(chunk, 8, 0, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(out, chunk...), crc32.ChecksumIEEE(chunk))
}

func webp(kind string, rest ...byte) []byte {
	return append([]byte("RIFF\x40\x00\x00\x00WEBP"+kind+"\x20\x00\x00\x00"), append(rest, make([]byte, 32)...)...)
}

// The content of an image says its type; one that is too large by its header is not shown, and no pixel is decoded.
func TestCheckImage(t *testing.T) {
	pngs := encoded(t, func(w io.Writer, i image.Image) error { return png.Encode(w, i) })
	for name, c := range map[string]struct {
		data       []byte
		mime, want string
	}{
		"png":             {pngs, "image/png", ""},
		"jpeg":            {encoded(t, func(w io.Writer, i image.Image) error { return jpeg.Encode(w, i, nil) }), "image/jpeg", ""},
		"gif":             {encoded(t, func(w io.Writer, i image.Image) error { return gif.Encode(w, i, nil) }), "image/gif", ""},
		"webp":            {webp("VP8 ", 0, 0, 0, 0x9d, 0x01, 0x2a, 3, 0, 2, 0), "image/webp", ""},
		"webp lossless":   {webp("VP8L", 0x2f, 2, 0x40, 0, 0), "image/webp", ""},
		"webp extended":   {webp("VP8X", 0, 0, 0, 0, 2, 0, 0, 1, 0, 0), "image/webp", ""},
		"webp too large":  {webp("VP8X", 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "", "million"},
		"webp damaged":    {webp("VP8 "), "", "damaged"},
		"webp truncated":  {webp("VP8 ")[:20], "", "damaged"},
		"webp of no kind": {webp("XXXX"), "", "no png"},
		"many pixels":     {header(30_000, 30_000), "", "30000 x 30000 pixels"},
		"no pixels":       {header(0, 5), "", "damaged"},
		"truncated":       {pngs[:20], "", "damaged"},
		"a text":          {[]byte("a text"), "", "no png"},
		"svg":             {[]byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), "", "no png"},
		"nothing":         {nil, "", "no png"},
		"too many bytes":  {append(bytes.Clone(pngs), make([]byte, toolset.MaxImage)...), "", "5 MiB"},
	} {
		mime, err := toolset.CheckImage(c.data)
		if mime != c.mime || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, mime, err)
		}
	}
}

// images are what was stored, by hash.
type images struct {
	stored map[string][]byte
	err    error
}

func (s *images) Write(_ context.Context, _ toolset.Place, m model.Image, data []byte) error {
	if s.err == nil {
		s.stored[m.SHA256] = data
	}
	return s.err
}

// A result has references to its images, at most four, whatever it is otherwise; what is not shown is a line of it.
func TestImagesOfResult(t *testing.T) {
	picture := func(n int) toolset.Image {
		return toolset.Image{Name: "dir/p.png", Data: encoded(t, func(w io.Writer, i image.Image) error {
			i.(*image.Gray).SetGray(0, 0, color.Gray{Y: uint8(n)})
			return png.Encode(w, i)
		})}
	}
	many := []toolset.Image{picture(1), picture(2), picture(3), picture(4), picture(5)}
	for name, c := range map[string]struct {
		result toolset.Result
		err    error
		shown  int
		text   string
	}{
		"one":        {toolset.Result{Text: "a picture", Images: many[:1]}, nil, 1, `"text":"a picture"`},
		"JSON":       {toolset.Result{JSON: []byte(`{"a":1}`), Images: many[:2]}, nil, 2, `"a":1`},
		"no text":    {toolset.Result{Images: many[:1]}, nil, 1, `"text":""`},
		"five":       {toolset.Result{Text: "x", Images: many}, nil, 4, "only 4 images of a result are shown"},
		"no image":   {toolset.Result{Text: "x", Images: []toolset.Image{{Name: "p", Data: []byte("p")}}}, nil, 0, "is not shown: it is no png"},
		"not stored": {toolset.Result{Text: "x", Images: many[:1]}, errors.New("away"), 0, "is not shown: it could not be stored"},
	} {
		store := &images{stored: map[string][]byte{}, err: c.err}
		tool := scripted{name: "look", class: toolset.Read, run: func(context.Context, int, toolset.Call) toolset.Result { return c.result }}
		calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
		calls.Media = store
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{ID: "c", Name: "look", Arguments: []byte(`{"n":1}`)}, false)
		if err != nil || !strings.Contains(text, c.text) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		refs := toolset.Images(text)
		if len(refs) != c.shown {
			t.Errorf("%s: %d images: %s", name, len(refs), text)
		}
		for n, ref := range refs {
			if !bytes.Equal(store.stored[ref.SHA256], c.result.Images[n].Data) || ref.MIME != "image/png" || ref.Size != int64(len(c.result.Images[n].Data)) {
				t.Errorf("%s: image %d is %+v", name, n, ref)
			}
		}
	}
}
