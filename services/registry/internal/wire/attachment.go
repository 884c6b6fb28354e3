package wire

import (
	"strings"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Attachment is a file of a message in the content of its event.
type Attachment struct {
	Type  string `json:"type"` // image, audio, voice, video or file
	MIME  string `json:"mime,omitempty"`
	Name  string `json:"name"`
	Size  int64  `json:"size,omitempty"`  // bytes
	Media string `json:"media,omitempty"` // sha256: and 64 hex digits
	Error string `json:"error,omitempty"` // why it is not there
}

// AttachmentOf is a file that an agent sends.
func AttachmentOf(m *registryv1.Media) Attachment {
	kind := "file"
	if class, _, _ := strings.Cut(m.GetMime(), "/"); class == "image" || class == "audio" || class == "video" {
		kind = class
	}
	return Attachment{Type: kind, MIME: m.GetMime(), Name: m.GetName(), Size: m.GetSize(), Media: "sha256:" + m.GetSha256()}
}
