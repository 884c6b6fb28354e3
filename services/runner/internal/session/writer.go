package session

import (
	"sync"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Delay is how long a session file may be behind its thread.
const Delay = time.Second

// Writer writes session files a moment after their turns: of turns that follow
// closely on one another only the last is written. A process that is killed leaves
// the files as they were. A nil Writer writes at once.
type Writer struct {
	mu      sync.Mutex
	waiting map[string]func()
	writing sync.WaitGroup
}

// Write replaces the session file of a thread soon; failed is called when it cannot be
// written.
func (l *Writer) Write(dir, threadID, system string, messages []model.Message, failed func(error)) {
	write := func() {
		if err := Write(dir, threadID, system, messages); err != nil {
			failed(err)
		}
	}
	if l == nil {
		write()
		return
	}
	path := Path(dir, threadID)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, soon := l.waiting[path]
	if l.waiting == nil {
		l.waiting = map[string]func(){}
	}
	if l.waiting[path] = write; !soon {
		time.AfterFunc(Delay, func() { l.run(path) })
	}
}

// Drop forgets what is to be written for a thread and waits for what is being
// written: the file is another's from now on.
func (l *Writer) Drop(dir, threadID string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	delete(l.waiting, Path(dir, threadID))
	l.mu.Unlock()
	l.writing.Wait()
}

// Flush writes all that is waiting.
func (l *Writer) Flush() {
	for _, path := range l.paths() {
		l.run(path)
	}
	l.writing.Wait()
}

func (l *Writer) paths() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for path := range l.waiting {
		out = append(out, path)
	}
	return out
}

func (l *Writer) run(path string) {
	l.mu.Lock()
	write := l.waiting[path]
	delete(l.waiting, path)
	if write != nil {
		l.writing.Add(1)
	}
	l.mu.Unlock()
	if write != nil {
		defer l.writing.Done()
		write()
	}
}
