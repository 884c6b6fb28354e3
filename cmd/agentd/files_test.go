//go:build proof

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S2-16: agentd is killed at each instant of a message with two files, which a program posts until it is accepted. The
// message is stored once, with both files, and answered; no file is under a name that its data do not have.
func TestKilledWithPostedFiles(t *testing.T) {
	contents := map[string]string{"one.txt": "the first", "two.txt": "the second"}
	var attachments []map[string]any
	for name, text := range contents {
		attachments = append(attachments, map[string]any{"name": name, "data": []byte(text)}) // in base64
	}
	body, err := json.Marshal(map[string]any{"id": "o-1", "from": map[string]string{"id": "7"}, "text": "say: hello", "attachments": attachments})
	check(t, err)
	// The first answer of the registry (G3) says who gets the message, the second one that it is stored.
	blows := []blow{{label: "G1", hit: 1}, {label: "G3", hit: 1}, {label: "G2", hit: 1}, {label: "G2", hit: 2}, {label: "T0.before", hit: 1}, {label: "T0.after", hit: 1}, {label: "G3", hit: 2}, {label: "G4", hit: 1}}
	for _, b := range blows {
		t.Run(fmt.Sprint(b.label, b.hit), func(t *testing.T) {
			at := freeAddress(t)
			shop, env := webhookPhone(t, "http://"+at)
			platform := shop.(*webhookPlatform)
			site := world.NewSite(t, program(t))
			check(t, os.MkdirAll(site.Home, 0o700))
			check(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), fmt.Appendf(nil, "gateway: {http: %q}\nchannels:\n  webhook: {type: webhook, dm: open, %s}\n", at, shop.entry()), 0o600))
			all := append([]string{"all"}, flags...)
			p := site.StartWith(t, append(env, fmt.Sprintf("%s=%s:%d", failpoint, b.label, b.hit)), all...)
			site.Create(t, "a1", "")
			post := func() {
				t.Helper()
				for end := time.Now().Add(30 * time.Second); ; check(t, pause.For(t.Context(), 5*time.Millisecond)) {
					answer, ok := platform.try(body)
					if ok && answer != "" || time.Now().After(end) {
						t.Fatalf("answered %q; the log:\n%s", answer, p.Log())
					}
					select {
					case <-p.Done():
						return
					default:
					}
					if ok {
						return
					}
				}
			}
			post()
			<-p.Done()
			if !p.Killed() {
				t.Fatalf("agentd ended without a kill; its log:\n%s", p.Log())
			}
			p = site.StartWith(t, env, all...)
			defer p.Kill()
			post()
			list := site.Events(t, "a1", "inbox", "type = 'message'")
			if len(list) != 1 {
				t.Fatalf("%d are stored: %v", len(list), list)
			}
			if turn := site.Await(t, "a1", list[0].GetId()); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Errorf("ended %v", turn)
			}
			for name, text := range contents {
				found, err := filepath.Glob(filepath.Join(site.Home, "agents/a1/workdir/inbox/*", name))
				if err != nil || len(found) != 1 {
					t.Fatalf("%s is at %q, %v; %s", name, found, err, list[0].GetContent())
				}
				if b, err := os.ReadFile(found[0]); err != nil || string(b) != text {
					t.Errorf("%s has %q, %v", name, b, err)
				}
			}
			var names []string
			check(t, fs.WalkDir(os.DirFS(filepath.Join(site.Home, "agents/a1/media")), ".", func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				// The other file may be half written when the first one is stored. It has no name yet, and is removed later.
				if b.label == "G2" && b.hit == 1 && strings.HasPrefix(path, ".media-") {
					return nil
				}
				b, err := os.ReadFile(filepath.Join(site.Home, "agents/a1/media", path))
				if sum := sha256.Sum256(b); filepath.Base(path) != hex.EncodeToString(sum[:]) {
					t.Errorf("%s has %q", path, b)
				}
				names = append(names, path)
				return err
			}))
			if len(names) != len(contents) {
				t.Errorf("%q", names)
			}
			for _, v := range violations(t, site.Home, invariant.Options{Live: true}) {
				t.Errorf("%s", v)
			}
		})
	}
}

// A registry that is away while a file is stored costs a wait and not the file.
func TestRegistryAwayFromPostedFile(t *testing.T) {
	at := freeAddress(t)
	shop, env := webhookPhone(t, "http://"+at)
	site := world.NewSite(t, program(t))
	check(t, os.MkdirAll(site.Home, 0o700))
	check(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), fmt.Appendf(nil, "gateway: {http: %q}\nchannels:\n  webhook: {type: webhook, dm: open, %s}\n", at, shop.entry()), 0o600))
	start := func(env []string, name string) *world.Process {
		return site.StartWith(t, env, append([]string{name}, flags...)...)
	}
	registry := start(nil, "registry")
	start(nil, "runner")
	// It stops when the registry has said who gets the message, and before the file is sent.
	gateway := start(append(env, failpoint+"=G3:1:stop"), "gateway")
	site.Serving(t, registry, "registry")
	site.Create(t, "a1", "")
	shop.say(7, "say: hello", "one.txt")
	gateway.Says("failpoint G3:1")
	registry.Kill()
	gateway.Signal(syscall.SIGCONT)
	registry = start(nil, "registry")
	site.Serving(t, registry, "registry")
	for end := time.Now().Add(30 * time.Second); !shop.calm(); check(t, pause.For(t.Context(), 5*time.Millisecond)) {
		if time.Now().After(end) {
			t.Fatalf("it is not accepted; the log of the gateway:\n%s", gateway.Log())
		}
	}
	turn := site.Await(t, "a1", 1)
	list := site.Events(t, "a1", "inbox", "type = 'message'")
	if turn.GetFate() != registryv1.Fate_FATE_REPLIED || len(list) != 1 || !strings.Contains(list[0].GetContent(), `"media":"sha256:`) {
		t.Errorf("%v, %v", turn, list)
	}
}
