package prompt

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Attachment is a file that came with a message, as its content describes it.
type Attachment struct {
	Type  string `json:"type"`
	MIME  string `json:"mime"`
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Media string `json:"media"` // sha256: and 64 hex digits; empty: the data are elsewhere, or nowhere
	Error string `json:"error"` // why the data are not there
	URL   string `json:"url"`   // of gateways that keep the data
}

// Stored reports whether the registry has the data.
func (a Attachment) Stored() bool {
	_, ok := toolset.MediaOf(a.Media)
	return ok && a.Size > 0
}

// Spoken reports whether the registry has the data of a voice message or of another file of sound.
func (a Attachment) Spoken() bool { return (a.Type == "voice" || a.Type == "audio") && a.Stored() }

// SHA256 of data that are stored, in hex.
func (a Attachment) SHA256() string {
	sha256, _ := toolset.MediaOf(a.Media)
	return sha256
}

// Path is where the file is put in the working directory: below a directory of its own, so that no
// two files of messages have one path.
func (a Attachment) Path() string { return path.Join("inbox", a.SHA256()[:12], a.file()) }

// file is the name of the file without a directory.
func (a Attachment) file() string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r == '/' || r == '\\' || r == 0x7f {
			return '_'
		}
		return r
	}, a.Name)
	if name = strings.Trim(name, ". "); name == "" || len(name) > 200 {
		return "file"
	}
	return name
}

// line stands for the file in the text of the message. What was said in it follows, each line marked.
func (a Attachment) line(transcripts []thread.Transcript) string {
	switch {
	case a.Stored():
		line := fmt.Sprintf("[attachment: %s %q (%s, %d bytes), the file %s", a.Type, a.Name, a.MIME, a.Size, a.Path())
		i := slices.IndexFunc(transcripts, func(t thread.Transcript) bool { return t.SHA256 == a.SHA256() })
		if i < 0 {
			return line + "]"
		}
		switch t := transcripts[i]; {
		case t.Error != "":
			return line + "; it could not be transcribed: " + t.Error + "]"
		case t.Text == "":
			return line + "; its transcript has no words]"
		default:
			return line + "; its transcript:]\n" + quoted(t.Text)
		}
	case a.Error != "":
		return fmt.Sprintf("[attachment: %s %q, not received: %s]", a.Type, a.Name, a.Error)
	case strings.HasPrefix(a.URL, "data:"):
		a.URL = "(inline)" // megabytes that are no text (S1-51)
	}
	return "[" + strings.Join(strings.Fields("attachment: "+a.Type+" "+a.Name+" "+a.URL), " ") + "]"
}

// Attachments are the files of a content whose data the registry has.
func Attachments(content string) (out []Attachment) {
	if !strings.Contains(content, `"media":"sha256:`) {
		return nil
	}
	_, list := decoded(content, nil, false)
	for _, a := range list {
		if a.Stored() {
			out = append(out, a)
		}
	}
	return out
}
