package runner_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// S3-116: an image that the tool read finds is stored, the step refers to it by its hash, and each later round shows the
// same bytes to a model that takes images, in both formats. Another model reads a line about it.
func TestImagesOfResults(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		api, facts string
		shown      bool
	}{
		"openai":    {"openai", "{m1: {images: true}}", true},
		"anthropic": {"anthropic", "{m1: {images: true}}", true},
		"unknown":   {"openai", "{}", false},
		"none":      {"openai", "{m1: {images: false}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			read := modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "read", Arguments: []string{`{"path":"x.png"}`}}}}
			again := modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c2", Name: "ls", Arguments: []string{`{}`}}}}
			script := modeltest.New(t, read, again, modeltest.Say("a gray picture"))
			home := filepath.Join(t.TempDir(), "home")
			if err := os.MkdirAll(home, 0o700); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("default: work\nproviders:\n  work: {api: %s, base_url: '%s', models: [m1], facts: %s}\n", c.api, script.URL(), c.facts)
			if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w := server.Start(t, server.Options{Home: home, Runner: runner.Config{Backoff: 10 * time.Millisecond, Probe: 100 * time.Millisecond}})
			w.Create(t, "a1", "tools:\n  profile: coding\n")
			if err := os.WriteFile(filepath.Join(home, "agents/a1/workdir/x.png"), picture.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			turn := w.Say(t, "a1", server.Peer("bob"), "look")
			want(t, w, turn, replied, "a gray picture")
			requests := script.Requests()
			if len(requests) != 3 {
				t.Fatalf("%d requests", len(requests))
			}
			for n, r := range requests[1:] {
				var images []modeltest.Image
				result := ""
				for _, m := range r.Chat.Messages {
					images = append(images, m.Images...)
					if m.Role == "tool" && m.ToolCallID == "c1" {
						result = m.Content
					}
				}
				if c.shown != (len(images) == 1) || c.shown && !bytes.Equal(images[0].Data, picture.Bytes()) {
					t.Errorf("request %d has %d images", n+1, len(images))
				}
				if !strings.Contains(result, "x.png is an image of type image/png") || strings.Contains(result, "this model takes none") == c.shown {
					t.Errorf("request %d: the result is %s", n+1, result)
				}
			}
			step := turn.GetSteps()[1]
			if r := string(step.GetResult()); !strings.Contains(r, `"media":"sha256:`) || strings.Contains(r, "base64") || len(r) > 1000 {
				t.Errorf("the step holds %s", r)
			}
			stored, err := filepath.Glob(filepath.Join(home, "agents/a1/media/??/*"))
			if err != nil || len(stored) != 1 {
				t.Fatal(stored, err)
			}
			if b, err := os.ReadFile(stored[0]); err != nil || !bytes.Equal(b, picture.Bytes()) {
				t.Errorf("%d bytes are stored, %v", len(b), err)
			}
		})
	}
}

// Files that came with a message are in the working directory before the model reads of them; an
// image is shown to a model that takes images, one that is damaged is a line of text, and what did not
// arrive is named (S2-46).
func TestFilesOfMessages(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	script := modeltest.New(t, modeltest.Say("a gray picture"), modeltest.Say("it was gray"))
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("default: work\nproviders:\n  work: {api: openai, base_url: '%s', models: [m1], facts: {m1: {images: true}}}\n", script.URL())
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := server.Start(t, server.Options{Home: home, Runner: runner.Config{Backoff: 10 * time.Millisecond, Probe: 100 * time.Millisecond}})
	w.Create(t, "a1", "")
	write := func(mime, name string, data []byte) string {
		sum := sha256.Sum256(data)
		ref := hex.EncodeToString(sum[:])
		to, err := w.Media.WriteMedia(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = to.Send(&registrypb.WriteMediaRequest{AgentId: "a1", Media: &registrypb.Media{Sha256: ref, Mime: mime, Name: filepath.Base(name), Size: int64(len(data))}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.CloseAndRecv(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"type":"file","mime":%q,"name":%q,"size":%d,"media":"sha256:%s"}`, mime, name, len(data), ref)
	}
	damaged := append([]byte("\x89PNG\r\n\x1a\n"), "no picture"...)
	content := `{"text":"look","attachments":[` + strings.Join([]string{
		write("image/png", "x.png", picture.Bytes()), write("image/png", "../../bad.png", damaged), write("audio/ogg", "voice.ogg", []byte("OggS")),
		`{"type":"video","name":"long.mp4","error":"it has more than 20 MiB"}`,
	}, ",") + `],"reply_context":{"channel_type":"telegram","channel_id":"main","peer_id":"bob","session_id":"bob"}}`
	say := func(content string) *registrypb.Turn {
		r, err := w.Threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
			Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registrypb.NewEvent{{Source: server.Peer("bob"), Type: "message", Content: content}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return w.Await(t, "a1", r.GetEventIds()[0])
	}
	want(t, w, say(content), replied, "a gray picture")
	want(t, w, say(`{"text":"and?","reply_context":{"channel_type":"telegram","channel_id":"main","peer_id":"bob","session_id":"bob"}}`), replied, "it was gray")
	placed, err := filepath.Glob(filepath.Join(home, "agents/a1/workdir/inbox/*/*"))
	if err != nil || len(placed) != 3 {
		t.Fatal(placed, err)
	}
	for n, r := range script.Requests() {
		var images []modeltest.Image
		said := ""
		for _, m := range r.Chat.Messages {
			images = append(images, m.Images...)
			said += m.Content + "\n"
		}
		if len(images) != 1 || !bytes.Equal(images[0].Data, picture.Bytes()) {
			t.Errorf("request %d has %d images", n, len(images))
		}
		for _, want := range []string{`[attachment: file "x.png" (image/png, `, `"../../bad.png" of type image/png`, "it cannot be shown", `"voice.ogg" (audio/ogg, 4 bytes), the file inbox/`, `[attachment: video "long.mp4", not received: it has more than 20 MiB]`} {
			if !strings.Contains(said, want) {
				t.Errorf("request %d does not say %q: %s", n, want, said)
			}
		}
	}
}
