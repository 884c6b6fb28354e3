package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// maxJSON bounds what is read into memory for an entry of our own.
const maxJSON = 256 << 20

// Inspect reads a whole backup and answers what it holds, or why it is none.
func Inspect(ctx context.Context, r io.Reader) (Summary, error) {
	h, m, err := Read(ctx, r, func(Head) error { return nil }, func(*tar.Header, io.Reader) error { return nil })
	return h.sum(m), err
}

// Read reads a backup to its end and verifies every entry. begin is called with
// the head, each with every file; what each leaves unread is read here.
func Read(ctx context.Context, in io.Reader, begin func(Head) error, each func(*tar.Header, io.Reader) error) (h Head, m Manifest, err error) {
	r := tar.NewReader(in)
	next := func() (*tar.Header, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fault.Wrap(Damaged("it is truncated"), err)
		case errors.Is(err, tar.ErrHeader):
			return nil, fault.Wrap(Damaged("it is no tar"), err)
		case err != nil:
			return nil, fmt.Errorf("read backup: %w", err)
		case e.Typeflag != tar.TypeReg:
			return nil, Damaged(fmt.Sprintf("%.200q is not a file", e.Name))
		case sparse(e):
			return nil, Damaged(fmt.Sprintf("%.200q has holes", e.Name))
		}
		return e, nil
	}
	e, err := next()
	if err != nil {
		return h, m, err
	}
	if e.Name != HeadName {
		return h, m, Damaged("it does not begin with " + HeadName)
	}
	if err := decode(r, &h); err != nil {
		return h, m, err
	}
	if h.Format > Format {
		return h, m, fault.New(codes.FailedPrecondition, fault.FormatMismatch,
			fmt.Sprintf("the backup has format %d, this build knows %d", h.Format, Format), "use the version that made it")
	}
	if i := slices.IndexFunc(h.Agents, func(id string) bool { return layout.ValidID(id) != nil }); i >= 0 {
		return h, m, Damaged(fmt.Sprintf("%.80q is not an agent id", h.Agents[i]))
	}
	if err := begin(h); err != nil {
		return h, m, err
	}
	var files []Entry
	for {
		e, err := next()
		if err != nil {
			return h, m, err
		}
		if e.Name == ManifestName {
			break
		}
		sum := sha256.New()
		body := io.TeeReader(r, sum)
		err = each(e, body)
		if err == nil {
			_, err = io.Copy(io.Discard, body)
		}
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return h, m, fault.Wrap(Damaged("it is truncated"), err)
		case err != nil:
			return h, m, err
		}
		files = append(files, Entry{Name: Name(e.Name), Size: e.Size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	if err := decode(r, &m); err != nil {
		return h, m, err
	}
	if !slices.EqualFunc(files, m.Files, Entry.matches) {
		return h, m, Damaged("its files are not those of its manifest")
	}
	_, err = io.Copy(io.Discard, in) // the tar's end marks, so that a sender is not cut off
	return h, m, err
}

// matches reports whether an entry as it was read is that of the manifest.
func (e Entry) matches(m Entry) bool {
	return e.Name == m.Name && e.Size == m.Size && e.SHA256 == m.SHA256 && m.Read >= 0 && m.Read <= m.Size
}

// sparse reports whether an entry says of a few bytes that they are more: a tar of one
// page may hold a file of holes that takes a century to read.
func sparse(e *tar.Header) bool {
	for k := range e.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func decode(r io.Reader, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, maxJSON))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Wrap(Damaged("it is truncated"), err)
	}
	if err != nil {
		return fmt.Errorf("read backup: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fault.Wrap(Damaged("its description cannot be read"), err)
	}
	return nil
}
