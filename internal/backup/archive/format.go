package archive

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

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
	// Directories of working directories in which the backup has no file.
	Directories []Name `json:"directories,omitempty"`
	// LeftOut is what the backup does not hold, at most [MaxLeftOut] entries; More counts
	// the others, Missing those that should be in it.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	More    int       `json:"left_out_more,omitempty"`
	Missing int       `json:"missing,omitempty"`
}

// MaxLeftOut bounds the entries that a manifest names as left out.
const MaxLeftOut = 10_000

// Entry is a file as the manifest has it.
type Entry struct {
	Name   Name   `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Torn: the file became shorter, or could not be read, while it was copied. The first
	// Read bytes are of the file, the others are zeros.
	Torn bool  `json:"torn,omitempty"`
	Read int64 `json:"read,omitempty"`
}

// LeftOut is something that lies in the directory of an agent and not, or not completely,
// in the backup.
type LeftOut struct {
	Agent string `json:"agent_id"`
	Path  Name   `json:"path"` // in the directory of the agent
	Why   string `json:"why"`
	// Missing: it is a file that the backup should hold. Links, sockets, pipes and devices
	// are in no backup.
	Missing bool `json:"missing"`
}

// Name is a file name, which may hold any byte. In JSON it is a string, or
// {"base64": "..."} when it is not UTF-8.
type Name string

type rawName struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Name) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw rawName
		err := json.Unmarshal(b, &raw)
		*n = Name(raw.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(n))
}

// Summary is what a backup holds.
type Summary struct {
	CreatedAt time.Time `json:"created_at"`
	Agents    []string  `json:"agents"`
	Databases int       `json:"databases"`
	Files     int       `json:"files"` // without the databases
	Bytes     int64     `json:"bytes"`
	LeftOut   []LeftOut `json:"left_out"`
	More      int       `json:"left_out_more"`
	Missing   int       `json:"missing"`
}

// mediaFile is a file below media/.
var mediaFile = regexp.MustCompile(`^[0-9a-f]{2}/[0-9a-f]{64}$`)

// Split answers the agent of an entry and its path in the agent's directory, whose names
// are bytes as the file system has them. What a backup never holds is refused: a tar is
// input like any other.
func Split(name string) (id, rest string, err error) {
	bad := Damaged(fmt.Sprintf("%.200q has no place in a backup", name))
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 || parts[0] != "agents" || layout.ValidID(parts[1]) != nil {
		return "", "", bad
	}
	id, rest = parts[1], parts[2]
	if !filepath.IsLocal(rest) || path.Clean(rest) != rest || strings.Contains(rest, "\x00") {
		return "", "", bad
	}
	top, below, deep := strings.Cut(rest, "/")
	switch {
	case IsDatabase(rest): // checked to be of a thread
	case !deep && (rest == "IDENTITY.md" || rest == "USAGE.md" || rest == "config.yaml"):
	case (top == "memory" || top == "sessions") && below != "" && !strings.Contains(below, "/"):
	case top == "memory" && path.Dir(below) == "past":
	case top == "media" && mediaFile.MatchString(below):
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
	s := Summary{CreatedAt: h.CreatedAt, Agents: h.Agents, LeftOut: append([]LeftOut{}, m.LeftOut...), More: m.More, Missing: m.Missing}
	for _, f := range m.Files {
		if _, rest, err := Split(string(f.Name)); err == nil && IsDatabase(rest) {
			s.Databases++
		} else {
			s.Files++
		}
		s.Bytes += f.Size
	}
	return s
}
