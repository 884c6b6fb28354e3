package archive

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// Format is the version of the tar; a newer one is refused.
const Format = 1

// Names of the first and the last entry, and of every database.
const (
	HeadName     = "backup.json"
	ManifestName = "manifest.json"
	Database     = "events.db"
)

// Head is the first entry.
type Head struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`
	Agents    []string  `json:"agents"`
	Workdir   bool      `json:"workdir"`
}

// Manifest is the last entry.
type Manifest struct {
	Tokens map[string]uint64 `json:"tokens"` // by lease resource
	Files  []Entry           `json:"files"`
}

// Entry is a file as the manifest has it.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Summary is what a backup holds.
type Summary struct {
	CreatedAt time.Time `json:"created_at"`
	Agents    []string  `json:"agents"`
	Databases int       `json:"databases"`
	Files     int       `json:"files"` // without the databases
	Bytes     int64     `json:"bytes"`
}

// Split answers the agent of an entry and its path in the agent's directory.
// What a backup never holds is refused: a tar is input like any other.
func Split(name string) (id, rest string, err error) {
	bad := Damaged(fmt.Sprintf("%.200q has no place in a backup", name))
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 || parts[0] != "agents" || layout.ValidID(parts[1]) != nil {
		return "", "", bad
	}
	id, rest = parts[1], parts[2]
	if !filepath.IsLocal(rest) || path.Clean(rest) != rest || strings.ContainsAny(rest, "\\\x00") {
		return "", "", bad
	}
	top, below, deep := strings.Cut(rest, "/")
	switch {
	case IsDatabase(rest): // checked to be of a thread
	case !deep && (rest == "IDENTITY.md" || rest == "USAGE.md" || rest == "config.yaml"):
	case (top == "memory" || top == "sessions") && below != "" && !strings.Contains(below, "/"):
	case top == "workdir" && below != "":
	default:
		return "", "", bad
	}
	return id, rest, nil
}

// IsDatabase reports whether a path in an agent's directory is a thread's database.
func IsDatabase(rest string) bool {
	return path.Base(rest) == Database && layout.ValidThread(path.Dir(rest)) == nil
}

// Damaged is the error of a tar that cannot be used.
func Damaged(what string) *fault.Error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, "the backup cannot be used: "+what, "take another backup; nothing was changed")
}

// sum counts what a manifest holds.
func (h Head) sum(m Manifest) Summary {
	s := Summary{CreatedAt: h.CreatedAt, Agents: h.Agents}
	for _, f := range m.Files {
		if _, rest, err := Split(f.Name); err == nil && IsDatabase(rest) {
			s.Databases++
		} else {
			s.Files++
		}
		s.Bytes += f.Size
	}
	return s
}
