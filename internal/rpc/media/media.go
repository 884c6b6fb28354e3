// Package media writes media to the registry and reads them, for the services that have or need them.
//
// It promises that the registry has the media when [Write] returns without an error, and that what [Open] returns
// has the size and the hash that were asked for when its end is reached. It bounds no time and repeats nothing:
// callers do.
package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// piece is how much one message of a transfer holds, in bytes.
const piece = 256 << 10

// Write stores the data of media for an agent.
func Write(ctx context.Context, to registryv1.MediaServiceClient, agentID string, m *registryv1.Media, data []byte) error {
	out, err := to.WriteMedia(ctx)
	if err != nil {
		return err
	}
	req := &registryv1.WriteMediaRequest{AgentId: agentID, Media: m}
	for part := range slices.Chunk(data, piece) {
		req.Data = part
		if err := out.Send(req); errors.Is(err, io.EOF) {
			break // refused: the answer says why
		} else if err != nil {
			return err
		}
		req = &registryv1.WriteMediaRequest{}
	}
	_, err = out.CloseAndRecv()
	return err
}

// ErrDamaged is the error of a reader whose data have another size or hash than was asked for.
var ErrDamaged = errors.New("the data are damaged")

// Open reads the data of media of an agent, of a size in bytes. The reader ends with ctx.
func Open(ctx context.Context, from registryv1.MediaServiceClient, agentID, sum string, size int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	in, err := from.ReadMedia(ctx, &registryv1.ReadMediaRequest{AgentId: agentID, Sha256: sum})
	r := &reader{sum: sum, left: size, hash: sha256.New(), cancel: cancel}
	if err == nil {
		r.recv = in.Recv
		err = r.next()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, err
	}
	return r, nil
}

type reader struct {
	recv   func() (*registryv1.ReadMediaResponse, error)
	cancel context.CancelFunc
	sum    string
	data   []byte // that were received and not read
	left   int64  // to be received
	hash   hash.Hash
	end    error // of the stream
}

// next receives data. The error is [io.EOF] at the end of what was asked for.
func (r *reader) next() error {
	m, err := r.recv()
	switch {
	case errors.Is(err, io.EOF) && (r.left != 0 || hex.EncodeToString(r.hash.Sum(nil)) != r.sum):
		err = fmt.Errorf("media %s: %w", r.sum, ErrDamaged)
	case err == nil && int64(len(m.GetData())) > r.left:
		err = fmt.Errorf("media %s have more bytes than were stated: %w", r.sum, ErrDamaged)
	}
	if err != nil {
		r.end = err
		return err
	}
	r.data = m.GetData()
	r.left -= int64(len(r.data))
	_, _ = r.hash.Write(r.data) // it never fails
	return nil
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.end != nil {
			return 0, r.end
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// Close implements [io.Closer].
func (r *reader) Close() error { r.cancel(); return nil }
