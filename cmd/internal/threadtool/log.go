package threadtool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/thread"
)

// Levels of a line.
const (
	info = "INFO"
	warn = "WARN"
)

// maxLog is the size at which the log gets a stamp in its name.
const maxLog = 1 << 20

// logFile is logs/thread.log of a thread directory. It is for people who look
// for what happened: a line that cannot be written is dropped.
type logFile struct{ dir string }

func logOf(threadDir string) logFile { return logFile{filepath.Join(threadDir, "logs")} }

// write appends one line, in one write so that two processes do not mix theirs.
func (l logFile) write(level, format string, args ...any) {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, fmt.Sprintf(format, args...))
	now := time.Now()
	if os.MkdirAll(l.dir, 0o700) != nil {
		return
	}
	path := filepath.Join(l.dir, "thread.log")
	if i, err := os.Stat(path); err == nil && i.Size() >= maxLog {
		// A link does not replace: of two that rotate at once, one does.
		old := filepath.Join(l.dir, "thread-"+now.UTC().Format("20060102-150405")+".log")
		if os.Link(path, old) == nil {
			_ = os.Remove(path)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "[%s] [%s] %s\n", thread.Stamp(now), level, text)
}
