package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ProgramName is the file name of the small program that starts sandboxed programs.
const ProgramName = "theclaw-sandbox"

var errNoSum = errors.New("this build does not know the program's hash; make build compiles it in")

// FindProgram returns the path of [ProgramName] in the directory dir, for
// [Options].Program, if its SHA-256 is sum, in hexadecimal. An error says why it cannot be
// used; then this program is started again instead, which is slower and works equally.
//
// The file is read once, at the start. Who may replace it later may replace agentd as well:
// both are in one directory.
func FindProgram(dir, sum string) (string, error) {
	if sum == "" {
		return "", errNoSum
	}
	path := filepath.Join(dir, ProgramName)
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return "", fmt.Errorf("%s is of another build: its SHA-256 is %s, not %s", path, got, sum)
	}
	return path, nil
}
