package rpc

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// tokenBytes is the entropy of a token; in the file it is twice as many hex digits.
const tokenBytes = 32

// NewToken writes a fresh random token to path with mode 0600, replacing the old
// one in one step, and returns it. Services call it at each start, so a token
// that leaked is worth nothing after a restart. The directory must exist.
func NewToken(path string) (string, error) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails, says its documentation
	token := hex.EncodeToString(b)
	if err := writePrivate(path, token+"\n"); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	return token, nil
}

// writePrivate does not use renameio.WriteFile, which keeps the mode of the file
// it replaces and may stage in the directory for temporary files.
func writePrivate(path, text string) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // does nothing after the replacement
	if _, err := io.WriteString(f, text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// ReadToken reads the token at path. It refuses a file that others may read
// (whatever is in it is no secret any more), a link, and anything that is not a
// token. A missing file is an os.ErrNotExist.
func ReadToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("read token: %s has mode %v, want a file with 0600", path, fi.Mode())
	}
	b, err := io.ReadAll(io.LimitReader(f, 4*tokenBytes))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if raw, err := hex.DecodeString(token); err != nil || len(raw) != tokenBytes {
		return "", fmt.Errorf("read token: %s: %w", path, errNoToken)
	}
	return token, nil
}

var errNoToken = errors.New("not a token of 64 hex digits")

// Bearer is what a caller that may read the root token shows to be known as id.
// The owner shows the token itself. Anybody else shows `<kind>:<name>:<mac>`, which
// proves the identity and cannot be turned into the token or into another
// identity: it is safe to hand to the party it names.
func Bearer(token string, id Identity) string {
	if id.Kind == Owner || id.Kind == "" {
		return token
	}
	return string(id.Kind) + ":" + id.Name + ":" + hex.EncodeToString(mac(token, string(id.Kind), id.Name))
}

// VerifyBearer returns who shows this bearer. It compares in constant time and
// refuses everything when token is empty.
func VerifyBearer(token, bearer string) (Identity, bool) {
	if token == "" {
		return Identity{}, false
	}
	kind, rest, named := strings.Cut(bearer, ":")
	if !named {
		// The length is no secret; the rest takes the same time whatever differs.
		if subtle.ConstantTimeCompare([]byte(token), []byte(bearer)) == 1 {
			return Identity{Kind: Owner}, true
		}
		return Identity{}, false
	}
	i := strings.LastIndexByte(rest, ':')
	if i <= 0 || (Kind(kind) != Service && Kind(kind) != Agent) {
		return Identity{}, false
	}
	shown, err := hex.DecodeString(rest[i+1:])
	if err != nil || !hmac.Equal(shown, mac(token, kind, rest[:i])) {
		return Identity{}, false
	}
	return Identity{Kind: Kind(kind), Name: rest[:i]}, true
}

func mac(token, kind, name string) []byte {
	h := hmac.New(sha256.New, []byte(token))
	_, _ = h.Write([]byte("theclaw identity\x00" + kind + "\x00" + name)) // a hash never fails
	return h.Sum(nil)
}

// TokenFile is the token as its file holds it now: it may be rotated at any time
// by whoever may write the file, who is the owner. It is safe for concurrent use.
type TokenFile struct {
	path string

	mu    sync.Mutex
	info  os.FileInfo // of the file that token was read from
	token string
}

// NewTokenFile follows the token at path, which need not be there yet.
func NewTokenFile(path string) *TokenFile { return &TokenFile{path: path} }

// Token answers the present token; "" before there is one. A file that cannot be
// used, or is gone, leaves the last one in force.
func (f *TokenFile) Token() string {
	info, err := os.Lstat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	// A new token is a new file: it is written beside the old one and renamed.
	if err != nil || f.info != nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) {
		return f.token
	}
	if token, err := ReadToken(f.path); err == nil {
		f.info, f.token = info, token
	}
	return f.token
}
