package toolset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // their headers are read
	_ "image/jpeg"
	_ "image/png"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
)

const (
	// MaxImages is the most images of a result that are shown.
	MaxImages = 4
	// MaxImage is the size of the largest image that is shown, in bytes.
	MaxImage = 5 << 20
	// maxPixels is the most pixels of an image that is shown.
	maxPixels = 50_000_000
)

// Image is an image of a result, as a tool has found it: its content decides what it is.
type Image struct {
	Name string // of the file; may be empty
	Data []byte
}

// Media stores images before the step that refers to them is journaled.
type Media interface {
	Write(ctx context.Context, p Place, m model.Image, data []byte) error
}

// imageTypes are the types that are shown.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// ImageType is the type of an image that models take, by the beginning of its data; empty: it is none.
func ImageType(head []byte) string {
	if kind := http.DetectContentType(head); slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}

// ImageOf returns a file that a reference names as an image for a model; false: it is none that is shown.
func ImageOf(mime, name, media string, size int64) (model.Image, bool) {
	sha256, ok := MediaOf(media)
	if !ok || !slices.Contains(imageTypes, mime) || size <= 0 || size > MaxImage {
		return model.Image{}, false
	}
	return model.Image{SHA256: sha256, MIME: mime, Name: name, Size: size}, true
}

// MediaOf returns the hash of media that the registry has, in hex, from the reference in a result or in
// the content of a message; false: it is none.
func MediaOf(ref string) (sha256 string, ok bool) {
	return strings.TrimPrefix(ref, "sha256:"), mediaRef.MatchString(ref)
}

// CheckImage returns the type of an image, or why it is not shown. Only its header is read.
func CheckImage(data []byte) (mime string, err error) {
	mime = ImageType(data)
	var c image.Config
	switch {
	case mime == "":
		return "", errors.New("it is no png, jpeg, gif or webp")
	case len(data) > MaxImage:
		return "", fmt.Errorf("it has %d bytes, and more than %d MiB are not shown", len(data), MaxImage>>20)
	case mime == "image/webp":
		c.Width, c.Height = webpSize(data)
	default:
		if c, _, err = image.DecodeConfig(bytes.NewReader(data)); err != nil {
			return "", errors.New("its header is damaged")
		}
	}
	switch {
	case c.Width <= 0 || c.Height <= 0:
		return "", errors.New("its header is damaged")
	case int64(c.Width)*int64(c.Height) > maxPixels:
		return "", fmt.Errorf("it has %d x %d pixels, and more than %d million are not shown", c.Width, c.Height, maxPixels/1_000_000)
	}
	return mime, nil
}

// webpSize reads the size in pixels from the header of a WebP file (RFC 9649); 0: it is damaged.
func webpSize(b []byte) (width, height int) {
	if len(b) < 30 {
		return 0, 0
	}
	switch string(b[12:16]) {
	case "VP8 ": // a key frame: three bytes of a tag, a start code, then 14 bits each
		if b[23] == 0x9d && b[24] == 0x01 && b[25] == 0x2a {
			return int(binary.LittleEndian.Uint16(b[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(b[28:]) & 0x3fff)
		}
	case "VP8L": // a signature, then 14 bits each, less one
		if b[20] == 0x2f {
			bits := binary.LittleEndian.Uint32(b[21:])
			return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
		}
	case "VP8X": // flags, then 24 bits each, less one
		return int(uint32(b[24])|uint32(b[25])<<8|uint32(b[26])<<16) + 1, int(uint32(b[27])|uint32(b[28])<<8|uint32(b[29])<<16) + 1
	}
	return 0, 0
}

// shownImage is a reference to an image in the JSON of a result, as attachments of messages have it.
type shownImage struct {
	Type  string `json:"type"`
	MIME  string `json:"mime"`
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Media string `json:"media"` // sha256: and 64 hex digits
}

var mediaRef = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// store stores the images of a result. What cannot be shown is a line of the result instead.
func (c *Calls) store(ctx context.Context, r *Result) (refs []shownImage) {
	var notes []string
	for n, i := range r.Images {
		name := imageName(i.Name)
		mime, err := CheckImage(i.Data)
		switch {
		case n >= MaxImages:
			err = fmt.Errorf("only %d images of a result are shown", MaxImages)
		case err == nil:
			sum := sha256.Sum256(i.Data)
			m := model.Image{SHA256: hex.EncodeToString(sum[:]), MIME: mime, Name: name, Size: int64(len(i.Data))}
			if err = c.write(ctx, m, i.Data); err == nil {
				refs = append(refs, shownImage{"image", mime, m.Name, m.Size, "sha256:" + m.SHA256})
				continue
			}
		}
		notes = append(notes, fmt.Sprintf("[image %q of %d bytes is not shown: %s]", name, len(i.Data), err))
	}
	if len(notes) > 0 {
		r.Text = strings.TrimLeft(r.Text+"\n"+strings.Join(notes, "\n"), "\n")
	}
	return refs
}

// attach stores the file of a message.
func (c *Calls) attach(ctx context.Context, f *File) (*registrypb.Media, error) {
	sum := sha256.Sum256(f.Data)
	m := model.Image{SHA256: hex.EncodeToString(sum[:]), MIME: f.MIME, Name: imageName(f.Name), Size: int64(len(f.Data))}
	if err := c.write(ctx, m, f.Data); err != nil {
		return nil, err
	}
	return &registrypb.Media{Mime: m.MIME, Name: m.Name, Size: m.Size, Sha256: m.SHA256}, nil
}

// imageName is the name of an image, or of a file that is sent, for the journal and the registry: a short line without directories.
func imageName(s string) string {
	s, _ = boundary.Text(s, 0)
	return cut(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '/' || r == '\\' {
			return '_'
		}
		return r
	}, s), 128)
}

// write stores an image, or a file that is sent.
func (c *Calls) write(ctx context.Context, m model.Image, data []byte) error {
	if c.Media == nil {
		return errors.New("no files are stored here")
	}
	err := c.Media.Write(ctx, c.Place, m, data)
	if err != nil {
		c.Logf("WARN", "tool: an image is not stored: %s", err)
		err = errors.New("it could not be stored")
	}
	return err
}

// withImages adds the references to the JSON of a result.
func withImages(result []byte, refs []shownImage) []byte {
	rest, object := bytes.CutPrefix(result, []byte("{"))
	list, err := json.Marshal(refs)
	if len(refs) == 0 || !object || err != nil {
		return result
	}
	out := append([]byte(`{"images":`), list...)
	if rest = bytes.TrimLeft(rest, " \t\r\n"); len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// Images are the images that a journaled result of a call refers to.
func Images(result string) (out []model.Image) {
	if !strings.Contains(result, `"media":"sha256:`) {
		return nil
	}
	var r struct {
		Images []shownImage `json:"images"`
	}
	if json.Unmarshal([]byte(result), &r) != nil {
		return nil
	}
	for _, i := range r.Images {
		if image, ok := ImageOf(i.MIME, i.Name, i.Media, i.Size); ok && len(out) < MaxImages {
			out = append(out, image)
		}
	}
	return out
}
