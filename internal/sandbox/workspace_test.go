//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// S4-76: a program reads the workspace and changes nothing in it, and writes in its workdir.
func TestWorkspace(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		if l == LevelOff {
			return // nothing is kept from a program on the host
		}
		s, dir, workspace := only(t, l), workdir(t, l), workdir(t, l)
		if err := os.WriteFile(filepath.Join(workspace, "note"), []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		uid, gid, err := owner(workspace)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(workspace, "note"), uid, gid); err != nil {
			t.Fatal(err)
		}
		r := mustRun(t, s, Command{
			Workdir: dir, Workspace: workspace, Env: map[string]string{"W": workspace},
			Shell: `cat "$W/note"; for c in 'echo new >"$W/note"' 'echo x >"$W/other"' 'rm -f "$W/note"' 'mkdir "$W/d"' 'chmod 777 "$W/note"' 'mv "$W/note" .'; do
				if sh -c "$c" 2>/dev/null; then echo "done: $c"; fi
			done; echo kept >mine && cat mine`,
		})
		want := "old\nkept\n"
		if l == LevelReduced {
			want = "old\ndone: chmod 777 \"$W/note\"\nkept\n" // Landlock does not cover modes
		}
		if string(r.Stdout) != want || r.ExitCode != 0 {
			t.Errorf("%q, %q, code %d", r.Stdout, r.Stderr, r.ExitCode)
		}
		if b, err := os.ReadFile(filepath.Join(workspace, "note")); err != nil || string(b) != "old\n" {
			t.Errorf("the note is %q, %v", b, err)
		}
		if list, err := os.ReadDir(workspace); err != nil || len(list) != 1 {
			t.Errorf("the workspace has %v, %v", list, err)
		}
		if got, _, err := owner(filepath.Join(dir, "mine")); err != nil || got != uid {
			t.Errorf("the file belongs to %d, want %d, %v", got, uid, err)
		}
		if _, err := s.Run(t.Context(), Command{Workdir: workspace, Workspace: workspace, Shell: "true"}); err == nil {
			t.Error("a workdir that is the workspace is used")
		}
	})
}

// S1-32: where programs have a root of their own, a workspace can be at another path, and only there.
func TestWorkspaceAt(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		if !l.OwnRoot() {
			return
		}
		s, dir, workspace := only(t, l), workdir(t, l), workdir(t, l)
		if err := os.WriteFile(filepath.Join(workspace, "hook"), []byte("#!/bin/sh\necho it runs\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		uid, gid, err := owner(workspace)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(workspace, "hook"), uid, gid); err != nil {
			t.Fatal(err)
		}
		r := mustRun(t, s, Command{
			Workdir: dir, Workspace: workspace, WorkspaceAt: "/hooks", Env: map[string]string{"W": workspace},
			Shell: `/hooks/hook; ls "$W" 2>/dev/null; echo x 2>/dev/null >/hooks/hook || echo kept`,
		})
		if string(r.Stdout) != "it runs\nkept\n" {
			t.Errorf("%q, %q, code %d", r.Stdout, r.Stderr, r.ExitCode)
		}
	})
}
