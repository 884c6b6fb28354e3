package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A backup with the home is a tar of three parts: a description, the files of the home, and
// a backup of agents as it is without the home. `tar -xO agents.tar` makes one of the other.
const (
	homeFormat = 1
	homeHead   = "theclaw-home.json"
	homePrefix = "home/"
	agentsPart = "agents.tar"
	// maxHomeFile is the largest file of a home that is backed up, maxHomeFiles their number.
	maxHomeFile  = 1 << 20
	maxHomeFiles = 1000
	tarBlock     = 512
)

// homeContent is the first part.
type homeContent struct {
	Format    int        `json:"format"`
	CreatedAt time.Time  `json:"created_at"`
	Files     []homeFile `json:"files"`
	// LeftOut are files that settings name and that are not in the home, and layout.EdgeName when no registry gave it.
	LeftOut []string `json:"left_out"`
}

type homeFile struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
	data   []byte
}

func (c homeContent) names() string {
	var out []string
	for _, f := range c.Files {
		out = append(out, boundary.Name(f.Name))
	}
	if len(out) == 0 {
		return "no file of the home"
	}
	return strings.Join(out, ", ")
}

// readHome reads the settings of a home, its certificates and the key files in it.
func readHome(home layout.Home, userHome string) (c homeContent, err error) {
	c = homeContent{Format: homeFormat, CreatedAt: time.Now().UTC(), Files: []homeFile{}, LeftOut: []string{}}
	root, err := os.OpenRoot(home.Path())
	if err != nil {
		return c, newfile.Fault(err, "set THECLAW_HOME or --home to the home directory")
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names := map[string]bool{}
	for _, name := range []string{layout.DefaultsName, layout.JSON5Name, layout.EnvName, provider.FileName} {
		text, err := safefile.Read(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return c, newfile.Fault(err, "make it readable for you")
		}
		names[name] = true
		for _, ref := range provider.References(string(text)) {
			if ref.Kind != "file" {
				continue
			}
			at := ref.Path(home.Path(), userHome)
			rel, err := filepath.Rel(home.Path(), at)
			if err != nil || checkHomeName(filepath.ToSlash(rel)) != nil {
				c.LeftOut = append(c.LeftOut, at)
				continue
			}
			names[filepath.ToSlash(rel)] = true
		}
	}
	for _, dir := range []string{".", "tls"} {
		entries, err := fs.ReadDir(root.FS(), dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, newfile.Fault(err, "make it readable for you")
		}
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && (dir == "tls" || strings.HasSuffix(e.Name(), ".key")) {
				names[path.Join(dir, e.Name())] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		data, err := safefile.Read(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			c.LeftOut = append(c.LeftOut, name)
			continue
		}
		if err != nil {
			return c, newfile.Fault(err, "make it readable for you")
		}
		c.add(name, data)
	}
	return c, nil
}

// checkHomeName refuses what is not a settings, key or certificate file of a home: a tar is
// input like any other.
func checkHomeName(name string) error {
	top, _, _ := strings.Cut(name, "/")
	if !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > 1000 || strings.ContainsAny(name, "\x00\n\r") ||
		slices.Contains([]string{".", "agents", "run", "audit"}, top) || strings.Contains(path.Base(name), ".db") {
		return archive.Damaged(fmt.Sprintf("%.200q is not a settings file of a home", name))
	}
	return nil
}

// writeHome writes a backup with the home to f, whose start it is. The size of the agents'
// part is known at its end, and its header is written then.
func writeHome(f *os.File, c homeContent, agents func(io.Writer) error) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("describe the home: %w", err)
	}
	w := tar.NewWriter(f)
	entry := func(name string, data []byte) error {
		if err := w.WriteHeader(homeHeader(name, int64(len(data)), c.CreatedAt)); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	if err := entry(homeHead, text); err != nil {
		return err
	}
	for _, file := range c.Files {
		if err := entry(homePrefix+file.Name, file.data); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := f.Write(make([]byte, tarBlock)); err != nil {
		return err
	}
	if err := agents(f); err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	size := end - at - tarBlock
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(homeHeader(agentsPart, size, c.CreatedAt)); err != nil {
		return err
	}
	if header.Len() != tarBlock {
		return fmt.Errorf("the header of %s has %d bytes", agentsPart, header.Len())
	}
	if _, err := f.WriteAt(header.Bytes(), at); err != nil {
		return err
	}
	// The padding of the part, and the two blocks that end a tar.
	_, err = f.Write(make([]byte, (tarBlock-size%tarBlock)%tarBlock+2*tarBlock))
	return err
}

// homeHeader is in GNU's format, which has a size of any length in one block.
func homeHeader(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: size, ModTime: at.Truncate(time.Second), Format: tar.FormatGNU}
}

// openHome reads the first parts of a backup with the home; agents is the last one. nil
// content: it is a backup of agents alone, which is answered unread.
func openHome(in io.Reader) (c *homeContent, agents io.Reader, err error) {
	b := bufio.NewReaderSize(in, 64<<10)
	first, _ := b.Peek(100) // the name; a shorter file is refused by what reads it next
	if name, _, _ := bytes.Cut(first, []byte{0}); string(name) != homeHead {
		return nil, b, nil
	}
	r := tar.NewReader(b)
	bad := func(what string, err error) (*homeContent, io.Reader, error) {
		return nil, nil, fault.Wrap(archive.Damaged(what), err)
	}
	next := func(most int64) (string, []byte, error) {
		h, err := r.Next()
		if err != nil {
			return "", nil, err
		}
		if h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 {
			return "", nil, fmt.Errorf("%.200q is not a file", h.Name)
		}
		if h.Name == agentsPart {
			return h.Name, nil, nil
		}
		if h.Size > most {
			return "", nil, fmt.Errorf("%.200q is larger than %d bytes", h.Name, most)
		}
		data, err := io.ReadAll(io.LimitReader(r, most))
		return h.Name, data, err
	}
	_, text, err := next(maxHomeFile)
	if err != nil {
		return bad("its description cannot be read", err)
	}
	c = new(homeContent)
	if err := json.Unmarshal(text, c); err != nil {
		return bad("its description cannot be read", err)
	}
	if c.Format > homeFormat {
		return nil, nil, fault.New(codes.FailedPrecondition, fault.FormatMismatch,
			fmt.Sprintf("the backup of the home has format %d, this build knows %d", c.Format, homeFormat), "use the version that made it")
	}
	if len(c.Files) > maxHomeFiles {
		return bad("it has too many files", nil)
	}
	for i := range c.Files {
		f := &c.Files[i]
		if err := checkHomeName(f.Name); err != nil {
			return nil, nil, err
		}
		name, data, err := next(maxHomeFile)
		if err != nil {
			return bad("it is truncated", err)
		}
		if sum := sha256.Sum256(data); name != homePrefix+f.Name || hex.EncodeToString(sum[:]) != f.SHA256 {
			return bad("its files are not those of its description", nil)
		}
		f.data = data
	}
	if name, _, err := next(maxHomeFile); err != nil || name != agentsPart {
		return bad("it has no "+agentsPart, err)
	}
	return c, r, nil
}

// installHome writes the files of a backup into the home. What is there and says something
// else is refused before anything is written, or kept as NAME.old with replace.
func installHome(home layout.Home, c *homeContent, replace bool) (written []string, err error) {
	if err := os.MkdirAll(home.Path(), 0o700); err != nil {
		return nil, newfile.Fault(err, "set THECLAW_HOME or --home to a directory of your own")
	}
	root, err := os.OpenRoot(home.Path())
	if err != nil {
		return nil, newfile.Fault(err, "set THECLAW_HOME or --home to a directory of your own")
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	old := map[string][]byte{}
	var todo []homeFile
	for _, f := range c.Files {
		now, err := safefile.Read(root, f.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			todo = append(todo, f)
		case err != nil:
			return nil, newfile.Fault(err, "make it readable for you")
		case bytes.Equal(now, f.data):
		case !replace:
			return nil, fault.New(codes.AlreadyExists, fault.InvalidArgument, boundary.Name(f.Name)+" is in this home already and says something else",
				"leave --with-home out to restore the agents alone, or give --replace to keep the old one as "+boundary.Name(f.Name)+".old")
		default:
			old[f.Name] = now
			todo = append(todo, f)
		}
	}
	for _, f := range todo {
		if dir := path.Dir(f.Name); dir != "." {
			if err := root.MkdirAll(dir, 0o700); err != nil {
				return written, newfile.Fault(err, "make the home writable for you")
			}
		}
		if now, ok := old[f.Name]; ok {
			if err := safefile.Replace(root, f.Name+".old", now); err != nil {
				return written, newfile.Fault(err, "make the home writable for you")
			}
		}
		if err := safefile.Replace(root, f.Name, f.data); err != nil {
			return written, newfile.Fault(err, "make the home writable for you")
		}
		written = append(written, f.Name)
	}
	return written, nil
}

// loadHome restores the home's part, when that is asked for, and answers the agents' part.
func loadHome(e *command.Env, in io.Reader, with, replace bool) (io.Reader, error) {
	c, agents, err := openHome(in)
	if err != nil {
		return nil, err
	}
	switch {
	case c == nil && with:
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument, "this backup contains agents only", "leave --with-home out; 'agentctl backup --with-home' makes one with the home")
	case c == nil || !with:
		if c != nil {
			e.Note("the backup also holds %s: --with-home restores them", c.names())
		}
		return agents, nil
	}
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	written, err := installHome(home, c, replace)
	if err != nil {
		return nil, err
	}
	e.Note("%d of %d files of the home were written; start agentd again so that it reads them", len(written), len(c.Files))
	if slices.Contains(written, layout.EdgeName) {
		e.Note("%s is added when agentd starts: who may write to accounts, the policy for commands, the approved tools of MCP servers; what this home has decided until then stays", layout.EdgeName)
	}
	return agents, nil
}

// decisions adds to the content of a home what people decided for it, which its registry has. Without one, and with one
// of an earlier version, it is left out.
func (c *homeContent) decisions(ctx context.Context, e *command.Env) error {
	idle, err := rest(e, false)
	if err != nil {
		return err
	}
	if idle != nil {
		c.LeftOut = append(c.LeftOut, layout.EdgeName)
		return idle.close()
	}
	r, err := e.Homes().ExportHome(ctx, &registry.ExportHomeRequest{})
	if err != nil && fault.From(err).Code == codes.Unimplemented { // an agentd from before an upgrade
		c.LeftOut = append(c.LeftOut, layout.EdgeName)
		return nil
	}
	if err != nil {
		return err
	}
	if rows := r.GetRows(); len(rows) > 0 { // last: a registry that starts during a restore finds the settings already
		c.add(layout.EdgeName, rows)
	}
	return nil
}

func (c *homeContent) add(name string, data []byte) {
	sum := sha256.Sum256(data)
	c.Files = append(c.Files, homeFile{name, len(data), hex.EncodeToString(sum[:]), data})
}

// noteLeftOut reports what a backup of a home does not have, and what to do.
func (c homeContent) noteLeftOut(e *command.Env) {
	for _, name := range c.LeftOut {
		if name == layout.EdgeName {
			e.Note("%s is not in the backup (who may write to accounts, the policy for commands, the approved tools of MCP servers): it needs a running agentd of this version; start agentd and make the backup again", name)
			continue
		}
		e.Note("%s is named in the settings and not in the backup: it is not in the home", boundary.Name(name))
	}
}

// fetchHome is fetch for a backup with the home.
func fetchHome(ctx context.Context, e *command.Env, f *os.File, what backup.Selection) (s archive.Summary, c homeContent, err error) {
	home, err := e.Home()
	if err != nil {
		return s, c, err
	}
	if c, err = readHome(home, e.Getenv("HOME")); err != nil {
		return s, c, err
	}
	if err := c.decisions(ctx, e); err != nil {
		return s, c, err
	}
	err = writeHome(f, c, func(w io.Writer) error {
		var err error
		s, err = fetch(ctx, e, w, what)
		return err
	})
	return s, c, err
}
