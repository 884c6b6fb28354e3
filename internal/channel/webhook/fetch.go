package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/netguard"
)

// maxFileURL is the longest address of a file, in bytes.
const maxFileURL = 2048

// Fetcher fetches the files that posts name by their addresses. It is safe for concurrent use and holds no
// connection between requests.
type Fetcher struct{ client *http.Client }

// NewFetcher returns a Fetcher that reaches the addresses of g.
func NewFetcher(g netguard.Guard) *Fetcher {
	return &Fetcher{&http.Client{Transport: newTransport(g.Control, nil), CheckRedirect: followFile}}
}

// fileURL reads the address of a file.
func fileURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, len(raw) > maxFileURL, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("is not an http:// or https:// address of at most %d bytes", maxFileURL)
	case u.User != nil:
		return nil, errors.New("holds a name or a password")
	}
	return u, nil
}

// redirectError is why a redirect is not followed.
type redirectError string

// Error implements error.
func (e redirectError) Error() string { return string(e) }

// followFile decides whether a redirect of a file is followed; its address is checked when it is dialled.
func followFile(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return redirectError(fmt.Sprintf("redirects more than %d times", maxRedirects))
	}
	if _, err := fileURL(next.URL.String()); err != nil {
		return redirectError("redirects to an address that " + err.Error())
	}
	if next.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https" {
		return redirectError("redirects from https:// to http://")
	}
	next.Header.Del("Referer") // the address may hold a token
	return nil
}

// open begins to fetch a file of at most limit bytes. The error names the host, and nothing else of the address or
// of where it leads; it is [channel.Rejected] where no repeat can help.
func (f *Fetcher) open(ctx context.Context, u *url.URL, limit int64) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fileError(channel.Rejected, u, "has an address that cannot be read", err)
	}
	req.Header.Set("User-Agent", "theclaw-gateway")
	res, err := f.client.Do(req)
	if err != nil {
		return nil, unreached(u, err)
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close() // nothing of it is used
		class, _ := classify(res.StatusCode)
		return nil, fileError(class, u, fmt.Sprintf("answered %d", res.StatusCode), nil)
	}
	return channel.File(content{res.Body, u}, res.ContentLength, limit)
}

// content is the body of a file.
type content struct {
	io.ReadCloser
	from *url.URL
}

// Read implements [io.Reader].
func (c content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fileError(channel.Failed, c.from, "broke the transfer off", err)
	}
	return n, err
}

// unreached is a request without an answer.
func unreached(u *url.URL, err error) *channel.Error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the address
	}
	if refused, ok := errors.AsType[*netguard.Refused](err); ok {
		return fileError(channel.Rejected, u, "has, or redirects to, an address that is not public", refused)
	}
	if why, ok := errors.AsType[redirectError](err); ok {
		return fileError(channel.Rejected, u, why.Error(), nil)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fileError(channel.Failed, u, "did not answer in time", err)
	}
	return fileError(channel.Failed, u, "cannot be reached", err)
}

func fileError(class channel.Class, u *url.URL, what string, cause error) *channel.Error {
	return &channel.Error{Class: class, What: channel.Clean(u.Host, 100) + " " + what, Err: cause}
}
