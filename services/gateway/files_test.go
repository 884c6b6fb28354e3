package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// onLoopback lets a gateway fetch attachments from servers of tests.
var onLoopback = netguard.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// png is a picture of one pixel.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

// withFiles is a message with attachments: pairs of a key and its value, one pair or more for each.
func withFiles(id, from, text string, files ...map[string]string) []byte {
	b, _ := json.Marshal(map[string]any{"id": id, "from": map[string]string{"id": from}, "text": text, "attachments": files})
	return b
}

// files is a server of attachments.
type files struct {
	*httptest.Server
	mu     sync.Mutex
	asked  map[string]int // by path
	broken map[string]int // how often a path is still answered 503
}

// requests are how often each path was asked for.
func (s *files) requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.asked)
}

func fileServer(t *testing.T) *files {
	t.Helper()
	s := &files{asked: map[string]int{}, broken: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		s.broken[r.URL.Path]--
		left := s.broken[r.URL.Path]
		s.mu.Unlock()
		switch {
		case left >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/large":
			_ = http.NewResponseController(w).Flush() // its size is not stated
			_, _ = w.Write(make([]byte, 1<<20+1))
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/there.txt", http.StatusFound)
		default:
			fmt.Fprint(w, "content of ", r.URL.Path)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// placed returns the content of the file with a name that a message put into the working directory; empty: there is
// none.
func (h *site) placed(t *testing.T, name string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(h.Home, "agents/admin/workdir/inbox/*", name))
	if err != nil || len(list) > 1 {
		t.Fatal(list, err)
	}
	if len(list) == 0 {
		return ""
	}
	b, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// S2-16: attachments of posts are stored before their message, as data or from an address, and are in the working
// directory when the agent answers. What cannot be had is named to the program and to the agent; a repeat fetches
// nothing.
func TestPostedFiles(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		s := fileServer(t)
		o.Guard = onLoopback
		h := open(t, o, "  free: {type: webhook, dm: open, media_max_mib: 1}\n  none: {type: webhook, dm: open, media_max_mib: 0}\n")
		h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		s.broken["/twice.txt"], s.broken["/always"] = 2, 100
		body := withFiles("1", "c7", "say: hello",
			map[string]string{"data": base64.StdEncoding.EncodeToString([]byte("a,b\n")), "name": "../table.csv", "mime": "text/csv"},
			map[string]string{"data": png, "mime": "application/zip"},
			map[string]string{"url": s.URL + "/d/there.txt?token=secret"},
			map[string]string{"url": s.URL + "/twice.txt"},
			map[string]string{"url": s.URL + "/moved", "name": "moved.txt"},
			map[string]string{"url": s.URL + "/large"},
			map[string]string{"url": s.URL + "/gone"},
			map[string]string{"url": s.URL + "/always"},
		)
		first := h.post(t, "/hooks/free?wait=30s", body)
		host := strings.TrimPrefix(s.URL, "http://")
		want := []string{
			"large: it has more than 1 MiB; channels.free.media_max_mib is 1", "gone: " + host + " answered 404", "always: " + host + " answered 503",
		}
		if first.Status != 200 || first.Fate != "replied" || !slices.Equal(first.Missing, want) {
			t.Fatalf("%+v", first)
		}
		if o.DSN == "" {
			for name, content := range map[string]string{"table.csv": "a,b\n", "there.txt": "content of /d/there.txt", "twice.txt": "content of /twice.txt", "moved.txt": "content of /there.txt"} {
				if got := h.placed(t, name); got != content {
					t.Errorf("%s has %q", name, got)
				}
			}
		}
		e := h.Events(t, "admin", "inbox", "type = 'message'")
		var content struct {
			Attachments []struct{ Type, MIME, Name, Media, Error string }
		}
		if len(e) != 1 || json.Unmarshal([]byte(e[0].GetContent()), &content) != nil || len(content.Attachments) != 8 {
			t.Fatal(e)
		}
		for n, a := range content.Attachments {
			if stored := strings.HasPrefix(a.Media, "sha256:"); stored == (a.Error != "") || stored != (n < 5) {
				t.Errorf("%+v", a)
			}
		}
		// What it is follows from its data.
		if a := content.Attachments[1]; a.MIME != "image/png" || a.Type != "image" || a.Name != "file-2.zip" {
			t.Errorf("%+v", a)
		}
		before := s.requests()
		if before["/twice.txt"] != 3 || before["/always"] != 3 || before["/gone"] != 1 || before["/large"] != 1 {
			t.Errorf("asked %v", before)
		}
		repeat := h.post(t, "/hooks/free?wait=30s", body)
		if !repeat.Duplicate || repeat.RunID != first.RunID || repeat.Reply != first.Reply || !maps.Equal(s.requests(), before) {
			t.Errorf("a repeat: %+v, asked %v", repeat, s.requests())
		}
		// A message of a file alone, and an account that takes none.
		if got := h.post(t, "/hooks/free?wait=30s", withFiles("2", "c7", "", map[string]string{"data": "YQ==", "name": "a.txt"})); got.Fate != "replied" || got.Missing != nil {
			t.Errorf("%+v", got)
		}
		got := h.post(t, "/hooks/none?wait=30s", withFiles("3", "c7", "say: x", map[string]string{"data": "YQ==", "name": "n.txt"}))
		if !strings.HasPrefix(got.Reply, "x") || !slices.Equal(got.Missing, []string{"n.txt: it has 1 bytes; channels.none.media_max_mib is 0"}) {
			t.Errorf("%+v", got)
		}
		// What is wrong with an attachment makes the message none.
		stored := h.stored(t)
		for _, bad := range []map[string]string{{"name": "a"}, {"url": s.URL, "data": "YQ=="}, {"data": "%"}, {"url": "ftp://example.org/a"}} {
			if got := h.post(t, "/hooks/free", withFiles("4", "c7", "x", bad)); got.Status != 400 || !strings.HasPrefix(got.Error, "attachments[0]") {
				t.Errorf("%v: %+v", bad, got)
			}
		}
		if n := h.stored(t); n != stored {
			t.Errorf("%d are stored, not %d", n, stored)
		}
	})
}

// Nothing is fetched for people who may not write, nor for what starts no turn, whose text names the files.
func TestFilesOfOthers(t *testing.T) {
	s := fileServer(t)
	h := open(t, world.Options{Guard: onLoopback}, `  free: {type: webhook, dm: pairing, groups: {allow: [g], mode: mention}}
`)
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	file := map[string]string{"url": s.URL + "/a.png", "mime": "image/png"}
	if got := h.post(t, "/hooks/free", withFiles("1", "c8", "x", file)); got.Status != 200 || got.Accepted {
		t.Errorf("%+v", got)
	}
	group := func(id string, mentioned bool) answer {
		b, _ := json.Marshal(map[string]any{
			"id": id, "from": map[string]string{"id": "c7"}, "text": "say: look", "conversation": map[string]string{"id": "g", "kind": "group"},
			"attachments": []any{file}, "mentioned": mentioned,
		})
		return h.post(t, "/hooks/free?wait=30s", b)
	}
	if got := group("2", false); got.Status != 202 || !got.Accepted || got.RunID != "" || got.Missing != nil {
		t.Errorf("%+v", got)
	}
	if asked := s.requests(); len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
	if got := group("3", true); got.Fate != "replied" || s.requests()["/a.png"] != 1 || h.placed(t, "a.png") == "" {
		t.Errorf("%+v, asked %v", got, s.requests())
	}
	e := h.Events(t, "admin", "threads/sessions/webhook.group-g", "subtype = 'context'")
	if len(e) != 1 || !strings.Contains(e[0].GetContent(), `say: look\n[attachment: image \"a.png\", not fetched]`) {
		t.Errorf("%v", e)
	}
}

// SECURITY: without a test's permission the gateway reaches no address of this machine, whatever allow_private of the
// account says: the message says that its file is missing.
func TestPostedFilesGuard(t *testing.T) {
	s := fileServer(t)
	h := open(t, world.Options{}, "  free: {type: webhook, dm: open, allow_private: true, url: \""+s.URL+"/replies\"}\n")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for n, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		got := h.post(t, "/hooks/free?wait=30s", withFiles(fmt.Sprint(n), "c7", "say: x", map[string]string{"url": "http://" + host + port + "/file"}))
		if want := "file: " + host + port + " has, or redirects to, an address that is not public"; !strings.HasPrefix(got.Reply, "x") || !slices.Equal(got.Missing, []string{want}) {
			t.Errorf("%s: %+v", host, got)
		}
	}
	if asked := s.requests(); asked["/file"] != 0 {
		t.Errorf("asked %v", asked)
	}
}

// Four attachments of an account are fetched at the same time and no more; 32 messages wait for theirs, and those
// beyond are to be posted again. None of them holds up a message without one.
func TestPostedFilesAtOnce(t *testing.T) {
	const most, waiting = 4, 32
	var now, peak atomic.Int32
	full, release := make(chan struct{}), make(chan struct{})
	reached, end := sync.OnceFunc(func() { close(full) }), sync.OnceFunc(func() { close(release) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		if n == most {
			reached()
		}
		<-release
		fmt.Fprint(w, "content")
	}))
	defer s.Close()
	defer end()
	h := open(t, world.Options{Guard: onLoopback}, "  free: {type: webhook, dm: open, rate: 0}\n")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	answers := make(chan answer)
	for n := range waiting + 3 {
		body := withFiles(fmt.Sprint(n), "c7", fmt.Sprint("say: ", n), map[string]string{"url": s.URL}, map[string]string{"url": s.URL})
		go func() { answers <- h.post(t, "/hooks/free", body) }()
	}
	for range 3 {
		if got := <-answers; got.Status != 503 || got.Retry == "" {
			t.Errorf("%+v", got)
		}
	}
	<-full
	data := withFiles("data", "c8", "say: here", map[string]string{"data": "YQ==", "name": "a.txt"})
	if got := h.post(t, "/hooks/free?wait=30s", data); !strings.HasPrefix(got.Reply, "here") || h.placed(t, "a.txt") != "a" {
		t.Errorf("%+v", got)
	}
	end()
	for range waiting {
		if got := <-answers; got.Status != 202 || got.Missing != nil {
			t.Errorf("%+v", got)
		}
	}
	if n := peak.Load(); n != most {
		t.Errorf("%d were fetched at the same time", n)
	}
}

// What a kill in the middle of a transfer leaves is what is on disk then, which is nothing of the file. A gateway that
// stops does not wait for it; the program posts again.
func TestPostedFileBrokenOff(t *testing.T) {
	const half = "the first half of a file"
	began, hang := make(chan struct{}, 3), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, half)
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	accounts := "  free: {type: webhook, dm: open}\n"
	h := open(t, world.Options{Guard: onLoopback}, accounts)
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	body := withFiles("1", "c7", "say: x", map[string]string{"url": s.URL + "/a.txt"})
	answers := make(chan answer, 1)
	go func() { answers <- h.post(t, "/hooks/free", body) }()
	<-began
	left := func() (found []string) {
		err := fs.WalkDir(os.DirFS(h.Home), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(filepath.Join(h.Home, name))
			if bytes.Contains(b, []byte(half)) || strings.Contains(name, "/media/") {
				found = append(found, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := left(); len(found) > 0 {
		t.Errorf("%q", found)
	}
	h.Gateways[0].Stop()
	if got := <-answers; got.Status != 503 || got.Retry == "" {
		t.Errorf("%+v", got)
	}
	h.Stop()
	close(hang)
	h = open(t, world.Options{Home: h.Home, Guard: onLoopback}, accounts)
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	if got := h.post(t, "/hooks/free?wait=30s", body); !strings.HasPrefix(got.Reply, "x") || got.Duplicate || h.placed(t, "a.txt") != half || h.stored(t) != 1 {
		t.Errorf("%+v", got)
	}
	if len(left()) == 0 {
		t.Error("the file is nowhere: this test would not find a part of it")
	}
}
