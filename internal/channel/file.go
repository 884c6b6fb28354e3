package channel

import (
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is the error of [Attachment.Open], and of a read of what it returned, for a file over
// the limit.
var ErrTooLarge = errors.New("the file is larger than its limit")

// File returns the content of a file, which fails with [ErrTooLarge] where it is longer than limit
// bytes, whatever size was stated; negative: none was. One that is stated to be longer is closed, and
// not read.
func File(body io.ReadCloser, stated, limit int64) (io.ReadCloser, error) {
	if stated > limit {
		_ = body.Close() // nothing of it is used
		return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, limit)
	}
	return &file{body: body, limit: limit, left: limit}, nil
}

type file struct {
	body        io.ReadCloser
	limit, left int64
}

// Read implements [io.Reader].
func (f *file) Read(p []byte) (int, error) {
	if int64(len(p)) > f.left+1 {
		p = p[:f.left+1]
	}
	n, err := f.body.Read(p)
	if int64(n) > f.left {
		n, f.left = int(f.left), 0
		return n, fmt.Errorf("%w of %d bytes", ErrTooLarge, f.limit)
	}
	f.left -= int64(n)
	return n, err
}

// Close implements [io.Closer].
func (f *file) Close() error { return f.body.Close() }
