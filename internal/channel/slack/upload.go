package slack

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/theclaw/agents/internal/channel"
)

// uploaded are the parameters of files.completeUploadExternal.
type uploaded struct {
	Files   []uploadedFile `json:"files"`
	Channel string         `json:"channel_id"`
	Thread  string         `json:"thread_ts,omitempty"`
	Comment string         `json:"initial_comment,omitempty"`
}

type uploadedFile struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

// upload sends the document of a message with its text as the comment, and returns the id of the file. Its content is
// at the platform before the last of three requests, which shows it: until then nothing is seen, and the send may
// be repeated. Such a message has no metadata, so a send that is in doubt is repeated, and flagged, not searched for.
func (s *sender) upload(ctx context.Context, token string, p place, m channel.Message) (string, error) {
	if err := s.admit(ctx, token, p.Channel); err != nil {
		return "", err
	}
	var at struct {
		URL  string `json:"upload_url"`
		File string `json:"file_id"`
	}
	const method = "files.getUploadURLExternal"
	err := s.read(ctx, token, method, url.Values{"filename": {m.Document.Name}, "length": {strconv.FormatInt(m.Document.Size, 10)}}, &at)
	switch {
	case err != nil:
		return "", unseen(err)
	case !idRule().MatchString(at.File) || !s.servesFile(at.URL):
		return "", &failure{method: method, why: "the answer has no address of the platform"}
	}
	if err := s.put(ctx, at.URL, m.Document); err != nil {
		return "", unseen(err)
	}
	comment := ""
	if m.Text != "" {
		comment = render(m.Text, maxText)[0]
	}
	return at.File, s.write(ctx, token, "files.completeUploadExternal", uploaded{[]uploadedFile{{at.File, m.Document.Name}}, p.Channel, p.Thread, comment}, nil)
}

// unseen is the error of a request that shows nothing, whether it arrived or not.
func unseen(err error) error {
	if f, ok := err.(*failure); ok { //nolint:errorlint // it is what the calls return
		f.left = false
	}
	return err
}

// put sends the content of a document to an address, which is the permission for it.
func (s *sender) put(ctx context.Context, address string, d *channel.Document) error {
	ctx, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	content, err := d.Open(ctx)
	if err != nil {
		return err
	}
	defer content.Close()
	req, err := channel.Request(ctx, http.MethodPost, address, &channel.Body{ReadCloser: content, Length: d.Size, Type: "application/octet-stream"})
	if err != nil { // the error would quote the address
		return &failure{method: "upload", why: "its address cannot be read"}
	}
	res, _, err := channel.RoundTrip(s.transport, req)
	if err != nil {
		return &failure{method: "upload", why: hostOf(address) + " cannot be reached", cause: err}
	}
	_ = res.Body.Close() // its text says nothing that the status does not
	if res.StatusCode != http.StatusOK {
		return &refusal{method: "upload", status: res.StatusCode, retryAfter: retryAfter(res)}
	}
	return nil
}
