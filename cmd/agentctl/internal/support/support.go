// Package support implements the command `agentctl support bundle`: one file that a person
// can send with a support request.
//
// It promises that the file is complete or not there, has mode 0600, and holds no secret
// that the home, the environment or a file named by providers.yaml has: known values are
// replaced in every form, text that looks like a credential too, values of settings that
// may be one are left out. It holds no message, no memory, no file of an agent and no
// database. Logs may name agents, conversations and files.
//
// A service that does not answer leaves out what only it knows; the bundle says so.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
)

// Command answers the command support.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:     "support",
		Short:   "Collect information for a support request",
		Example: `  agentctl support bundle support.tar.gz`,
	}, bundleCommand(e))
}

func bundleCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "bundle FILE",
		Short: "Write logs, versions, settings and checks into a file",
		Long: `Write FILE, a .tar.gz of mode 0600, with: the report of 'agentctl doctor', the versions
of the programs and of the services, the newest lines of the logs, the settings and the
sizes of the databases. Secrets are removed. It holds no message, memory or file of an
agent; logs may name agents, conversations and files. Read it before you send it.

The services may be stopped; what only they know is then missing. FILE is never replaced.`,
		Example: `  agentctl support bundle support.tar.gz
  tar -xzOf support.tar.gz support/doctor.json | jq .`,
		RunE: func(c *cobra.Command, args []string) error {
			e.Impatient = true // a service that is away is a finding
			files, size, err := write(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			err = e.Show(struct {
				Path  string `json:"path"`
				Files int    `json:"files"`
				Bytes int64  `json:"bytes"`
			}{args[0], files, size}, args[0], "%s: %d files, %d bytes", args[0], files, size)
			if err == nil && !e.Data() {
				e.Note("read it before you send it: logs may name agents, conversations and files")
			}
			return err
		},
	}
}

// write collects the bundle.
func write(ctx context.Context, e *command.Env, dest string) (files int, size int64, err error) {
	home, err := e.Home()
	if err != nil {
		return 0, 0, err
	}
	err = newfile.Make(dest, "a bundle", func(f *os.File) error {
		z := gzip.NewWriter(f)
		b := &bundle{env: e, home: home, tar: tar.NewWriter(z), now: time.Now()}
		if err := b.collect(ctx); err != nil {
			return err
		}
		if err := errors.Join(b.tar.Close(), z.Close()); err != nil {
			return fileFault(err)
		}
		files = b.files
		size, err = f.Seek(0, io.SeekCurrent)
		return err
	})
	return files, size, err
}

func fileFault(err error) error { return newfile.Fault(err, "write into a directory of your own") }

// bundle is the file as it is made.
type bundle struct {
	env   *command.Env
	home  layout.Home
	tar   *tar.Writer
	now   time.Time
	files int
	clean cleaner
}

// add puts a text into the bundle, without secrets.
func (b *bundle) add(name string, text []byte) error {
	out := b.clean.text(string(text))
	b.files++
	h := &tar.Header{Name: "support/" + name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(out)), ModTime: b.now, Format: tar.FormatPAX}
	if err := b.tar.WriteHeader(h); err != nil {
		return fileFault(err)
	}
	if _, err := io.WriteString(b.tar, out); err != nil {
		return fileFault(err)
	}
	return nil
}
