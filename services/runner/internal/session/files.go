package session

import (
	"fmt"
	"os"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Files is what an outside program is given for one call: the session it reads
// and appends to, and the texts that go with it.
type Files struct{ Session, System, Input string }

// At are the files of a thread.
func At(dir, threadID string) Files {
	path := Path(dir, threadID)
	return Files{Session: path, System: path + ".system", Input: path + ".input"}
}

// Prepare rebuilds the session of a thread from the messages and writes the two
// texts next to it. Their earlier content is lost.
func Prepare(dir, threadID, system string, messages []model.Message, input string) (Files, error) {
	f := At(dir, threadID)
	if err := Write(dir, threadID, system, messages); err != nil {
		return f, err
	}
	for path, text := range map[string]string{f.System: system, f.Input: input} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return f, fmt.Errorf("write session: %w", err)
		}
	}
	return f, nil
}

// Remove removes all of them.
func (f Files) Remove() {
	f.Tidy()
	_ = os.Remove(f.Session)
}

// Tidy removes the two texts; the session stays. That they are not there is as
// good.
func (f Files) Tidy() {
	_ = os.Remove(f.System)
	_ = os.Remove(f.Input)
}
