package channel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// Document is a file that goes with a message.
type Document struct {
	// Name is a base name; MIME is its type, such as image/png.
	Name, MIME string
	Size       int64 // bytes
	// Open returns the content from its beginning, or an [*Error].
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Documenter is a [Channel] that sends the documents of messages. Other channels get a line of text in their place.
type Documenter interface {
	Documents() DocumentLimit
}

// DocumentLimit is what a platform takes: files of at most Max bytes, with a text of at most Caption, in the units of
// [Limit], below them.
type DocumentLimit struct {
	Max     int64
	Caption int
}

// Image reports whether the document is a picture that platforms show.
func (d *Document) Image() bool {
	return d.MIME == "image/png" || d.MIME == "image/jpeg" || d.MIME == "image/webp" || d.MIME == "image/gif"
}

// Body is the body of a request, with a known length. The caller closes it.
type Body struct {
	io.ReadCloser
	Length int64
	Type   string // for Content-Type
}

// JSON is a body with a document.
func JSON(doc []byte) *Body {
	return &Body{ReadCloser: io.NopCloser(bytes.NewReader(doc)), Length: int64(len(doc)), Type: "application/json"}
}

// Request makes a request with a body; nil: without one.
func Request(ctx context.Context, verb, address string, b *Body) (*http.Request, error) {
	if b == nil {
		return http.NewRequestWithContext(ctx, verb, address, nil)
	}
	req, err := http.NewRequestWithContext(ctx, verb, address, b)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", b.Type)
	req.ContentLength = b.Length
	return req, nil
}

// Form makes the body of a request that has the fields, in their order, and the document as the field name, by
// multipart/form-data. The content is read while the body is.
func (d *Document) Form(ctx context.Context, fields [][2]string, name string) (*Body, error) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head) // a buffer takes all
	for _, f := range fields {
		_ = w.WriteField(f[0], f[1])
	}
	quote := strings.NewReplacer("\\", "\\\\", `"`, "\\\"", "\r", " ", "\n", " ")
	_, _ = w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf(`form-data; name="%s"; filename="%s"`, quote.Replace(name), quote.Replace(d.Name))},
		"Content-Type":        {d.MIME},
	})
	prefix := bytes.Clone(head.Bytes())
	head.Reset()
	_ = w.Close()
	content, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &Body{
		ReadCloser: struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(prefix), content, &head), content},
		Length: int64(len(prefix)) + d.Size + int64(head.Len()), Type: w.FormDataContentType(),
	}, nil
}
