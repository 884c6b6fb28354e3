package directory

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// damage is a database that is not opened for work any more.
type damage struct{ file, problem string }

// Damage notes that a thread's database is damaged, which file that
// is; the problem stands, whatever else is read, until Mend.
func (a *Agent) Damage(thread, file, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.damaged == nil {
		a.damaged = map[string]damage{}
	}
	a.damaged[thread] = damage{file, problem}
}

// Damaged answers the damaged threads and which file that is.
func (a *Agent) Damaged() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]string, len(a.damaged))
	for t, d := range a.damaged {
		out[t] = d.file
	}
	return out
}

// Mend forgets the damage of a thread.
func (a *Agent) Mend(thread string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.damaged, thread)
	a.problem = ""
}

// FileID tells the database file in dir from any other that gets its name. What
// is in it does not count: closing a damaged file writes to it, too.
func FileID(dir string) string {
	info, err := os.Stat(filepath.Join(dir, "events.db"))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
