package telegramtest

import (
	"fmt"
	"net/http"
	"strings"
)

// maxFile is the largest file that the Bot API hands out, maxUpload the largest that it takes.
const (
	maxFile   = 20 << 20
	maxUpload = 50 << 20
)

type fileState struct {
	path    string
	size    int64
	content []byte
}

// attach puts a file into the document of a message. The lock is held.
func (s *Server) attach(doc map[string]any, f *File) {
	size := f.Size
	if size == 0 {
		size = int64(len(f.Content))
	}
	add := func(suffix string) map[string]any {
		id := fmt.Sprintf("FILE-%d%s", len(s.files)+1, suffix)
		s.files[id] = &fileState{path: f.Kind + "s/file_" + fmt.Sprint(len(s.files)+1) + ".bin", size: size, content: f.Content}
		return map[string]any{"file_id": id, "file_unique_id": "u" + id, "file_size": size}
	}
	switch f.Kind {
	case "photo":
		small, large := add("s"), add("x")
		small["width"], small["height"], small["file_size"] = 90, 67, 1200
		large["width"], large["height"] = 1280, 960
		doc["photo"] = []any{large, small} // an order that a client must not rely on
	case "sticker":
		one := add("")
		one["width"], one["height"], one["emoji"], one["is_animated"], one["is_video"] = 512, 512, "👍", false, false
		doc["sticker"] = one
	default:
		one := add("")
		if f.Name != "" {
			one["file_name"] = f.Name
		}
		if f.MIME != "" {
			one["mime_type"] = f.MIME
		}
		doc[f.Kind] = one
	}
}

// download serves the content of a file, in the way the Bot API does.
func (s *Server) download(w http.ResponseWriter, r *http.Request, path string) {
	s.mu.Lock()
	var content []byte
	known := false
	for _, f := range s.files {
		if f.path == path {
			content, known = f.content, true
		}
	}
	fault := s.fault("file", 0)
	s.mu.Unlock()
	if fault != nil && !s.disturb(w, r, fault) {
		return
	}
	if !known {
		refuse(w, &refusal{Code: http.StatusNotFound, Description: "Not Found"})
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK) // without a length: who reads must count
	for len(content) > 0 {
		n := min(len(content), 64<<10)
		if _, err := w.Write(content[:n]); err != nil {
			return
		}
		content = content[n:]
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
}

// tokenPath splits /bot<token>/<rest>.
func tokenPath(path, prefix string) (token, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, prefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(path, "/")
}
