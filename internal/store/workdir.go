package store

import (
	"context"
	"errors"
)

// ErrNoPiece says that a snapshot names a piece that was never written, or was removed:
// all of them are to be written again.
var ErrNoPiece = errors.New("a piece of the working directory is not there")

// Snapshot is a working directory as it is to be kept.
type Snapshot struct {
	Base     string // hash of the one that it follows; "" when there is none
	Hash     string // of the manifest
	Manifest []byte
	Pieces   []string // hashes of all pieces that it is made of
}

// Workdirs keeps the working directories of agents that are worked on by many machines:
// one manifest for each, and the pieces it names. The PostgreSQL engine has it.
type Workdirs interface {
	// Workdir answers the newest manifest and its hash; "" when there is none.
	Workdir(ctx context.Context, agent string) (hash string, manifest []byte, err error)
	// Pieces returns those of an agent's pieces that are there.
	Pieces(ctx context.Context, agent string, hashes []string, found func(hash string, data []byte) error) error
	// PutPieces writes pieces. They are removed by the next snapshot that does not name
	// them.
	PutPieces(ctx context.Context, agent string, pieces map[string][]byte) error
	// PutWorkdir replaces the manifest, completely or not at all, and removes the pieces that
	// it does not name. Errors: ErrLeaseLost, ErrMoved when Base is not the newest,
	// ErrNoPiece.
	PutWorkdir(ctx context.Context, agent string, f Fence, s Snapshot) error
}
