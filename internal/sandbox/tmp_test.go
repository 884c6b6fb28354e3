package sandbox

import "testing"

func TestTmp(t *testing.T) {
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged, LevelReduced, LevelOff} {
		s, err := New(t.Context(), Options{ScratchDir: t.TempDir(), levels: []Level{l}})
		if err != nil { t.Fatal(err) }
		t.Logf("%+v", s.Report())
		t.Logf("%+v", s.cgroups)
		r, err := s.Run(t.Context(), Command{Shell: "id; cat /proc/self/uid_map; pwd; ls -la / . ; touch x; ls -ln x /proc | tail -5; env; grep -E 'Cap|NoNew|Secc' /proc/self/status; ulimit -a; ls /proc; echo err >/dev/stderr; cat /proc/self/cgroup", Workdir: t.TempDir()})
		t.Logf("%v %+v\n%s\n%s", err, r.Duration, r.Stdout, r.Stderr)
	}
}
