//go:build proof

package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bundle reads a support bundle.
func bundle(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	files, r := map[string]string{}, tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, err)
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		files[h.Name] = string(b)
	}
}

// A secret in each place of a home that may have one, and in logs, is nowhere in the
// bundle, with and without services; what helps is there.
func TestSupportBundle(t *testing.T) {
	secrets := map[string]string{}
	plant := func(place string) string {
		s := "plant" + strings.ToLower(rand.Text()[:10]) + "/+" + rand.Text()[:12]
		secrets[place] = s
		return s
	}
	dir := t.TempDir()
	home := filepath.Join(dir, "h")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(home, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString(text)
		must(t, errors.Join(err, f.Close()))
	}
	byEnv, byFile, channelFile := plant("provider key by env:"), plant("provider key by file:"), plant("channel secret by file:")
	write("work.key", byFile+"\n")
	write(".env", "WORK_KEY="+byEnv+"\n")
	must(t, os.WriteFile(filepath.Join(dir, "hook"), []byte(channelFile), 0o600))
	write("providers.yaml", "default: work\nproviders:\n  work: {base_url: \"http://127.0.0.1:9/v1\", api_key: \"file:work.key\", models: [m1]}\n  other:\n    base_url: http://127.0.0.1:9/v1\n    api_key: env:WORK_KEY\n")
	environment := []string{
		"THECLAW_HOME=" + home, "HOME=" + dir, "PATH=/usr/bin:/bin",
		"SOME_API_TOKEN=" + plant("environment"), "OPENAI_BASE_URL=http://u:" + url.QueryEscape(plant("password in a URL")) + "@127.0.0.1:9/v1?x=1",
	}
	ctl := func(code int, args ...string) string {
		t.Helper()
		c := exec.Command(filepath.Join(built(t), "agentctl"), args...)
		c.Env = environment
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != code {
			t.Fatalf("agentctl %q: exit %d\n%s", args, c.ProcessState.ExitCode(), out)
		}
		return string(out)
	}
	stop := services(t, home, "WORK_KEY="+byEnv)
	ctl(0, "init", "a1", "--provider", "offline")
	ctl(0, "start", "a1")
	if out := ctl(0, "send", "a1", "say: "+plant("a message"), "--wait"); !strings.Contains(out, "accepted") {
		t.Error(out)
	}
	write("agents/a1/config.yaml", "\nchannels:\n  hook:\n    type: webhook\n    url: https://hook.example.com/in?token="+plant("token in a URL")+"\n    secret: \"file:"+filepath.Join(dir, "hook")+"\"\n")
	ctl(0, "certs", "init")
	token, err := os.ReadFile(filepath.Join(home, "run", "token"))
	must(t, err)
	secrets["run/token"] = strings.TrimSpace(string(token))
	for _, name := range []string{"ca.key", "registry.pem"} {
		b, err := os.ReadFile(filepath.Join(home, "tls", name))
		must(t, err)
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			if strings.Contains(line, "PRIVATE KEY") && i+1 < len(lines) && strings.Contains(line, "BEGIN") {
				secrets["tls/"+name] = lines[i+1]
			}
		}
	}
	for place, s := range secrets { // a careless program has logged all of them
		if place == "a message" {
			continue
		}
		write("run/agentd.log", fmt.Sprintf("time=x level=ERROR msg=%q value=%s url=http://h/?k=%s header=%s\n", "a1 says "+s, s, url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s))))
		write("agents/a1/logs/agent.log", "careless: "+s+"\n")
	}
	first := filepath.Join(dir, "one.tar.gz")
	ctl(0, "support", "bundle", first)
	stop()
	// What cannot be used is still in the bundle, without what was written into the wrong place.
	write("agents/a1/config.yaml", "secret: "+plant("in plain text")+"\nlist:\n  password:\n  - "+plant("in a list")+"\n  token: |\n    "+plant("in a block")+"\n  inline: {a: 1, api_key: "+plant("inline")+", b: 2}\n")
	write("elsewhere", plant("file that theclaw.yaml names")+"\n")
	write("run/agentd.log", secrets["file that theclaw.yaml names"]+" "+secrets["in plain text"]+"\n")
	write("theclaw.yaml", "storage:\n  dsns: [\"postgres://claw:"+url.QueryEscape(plant("dsn"))+"@db/claw\"]\n  token: file:elsewhere\n")
	write("providers.yaml", "  wrong:\n    api_key: "+plant("key in place of a reference")+"\n")
	second := filepath.Join(dir, "two.tar.gz")
	ctl(0, "support", "bundle", second)
	if out := ctl(1, "support", "bundle", second); !strings.Contains(out, "exists already") {
		t.Error(out)
	}
	total := 0
	for _, path := range []string{first, second} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(path, info, err)
		}
		files := bundle(t, path)
		for name, text := range files {
			total += len(text)
			for place, s := range secrets {
				for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
					if strings.Contains(text, form) {
						t.Errorf("%s: %s holds the secret of %s", filepath.Base(path), name, place)
						break
					}
				}
			}
		}
		for name, want := range map[string]string{
			"support/versions.txt": "agentctl ", "support/doctor.json": `"check": "home"`, "support/databases.txt": "agents/a1/inbox/events.db",
			"support/logs/agentd.log": "careless", "support/logs/agents/a1.log": "careless: ", "support/settings/providers.yaml": `api_key -> "file:work.key"`,
			"support/settings/agents/a1.txt": "agent_id", "support/environment.txt": "SOME_API_TOKEN=[removed]",
		} {
			if name == "support/logs/agentd.log" {
				want = "a1 says"
			}
			if !strings.Contains(files[name], want) {
				t.Errorf("%s: %s is without %q:\n%.500s", filepath.Base(path), name, want, files[name])
			}
		}
	}
	if files := bundle(t, first); !strings.Contains(files["support/versions.txt"], "pid ") {
		t.Error("the services that serve are not in it:", files["support/versions.txt"])
	}
	fmt.Printf("support bundle secrets=%d bytes=%d leaks=%v\n", len(secrets), total, t.Failed())

	// A bundle that cannot be completed leaves nothing.
	closed := filepath.Join(dir, "none")
	ctl(1, "support", "bundle", filepath.Join(closed, "x.tar.gz"))
	left, _ := fs.Glob(os.DirFS(dir), ".*.tar.gz.*")
	if len(left) > 0 {
		t.Error(left)
	}
}
