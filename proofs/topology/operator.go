package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// local are the commands that work on the files of a home or on the sockets in it: they
// are run on the machine of the registry, as its user. So is doctor, which asks the other
// services too, unless the home has certificates of its own for it to look at.
var local = []string{"audit", "backup", "certs", "fsck", "log", "migrate", "migrate-store", "profile", "restore", "token"}

// Bin answers a directory for the PATH, with the programs as the operator of the site has
// them: agentctl calls over TCP with the operator's certificate, and is the operator's
// process. It gets the addresses of the registries and finds who works on an agent,
// and a runner is only named for what is asked of a certain one.
func (s *Site) Bin(t testing.TB) string {
	t.Helper()
	if s.operator == nil {
		return s.o.Programs
	}
	dir := filepath.Join(s.o.Root, "bin")
	check(t, os.MkdirAll(dir, 0o755))
	real := filepath.Join(s.o.Root, "programs")
	check(t, os.MkdirAll(real, 0o755))
	for _, name := range []string{"agentctl", "agent", "agentd", "thread"} {
		check(t, os.Symlink(filepath.Join(s.o.Programs, name), filepath.Join(real, name)))
	}
	script := fmt.Sprintf(`#!/bin/sh
case ${0##*/},$1 in
agentctl,doctor) test -d "$THECLAW_HOME/tls" || set -- --runner %[4]s --deliverer %[5]s --tls %[6]s "$@"
	exec %[2]s%[3]s/agentctl "$@" ;;
agentctl,%[1]s | thread,*) exec %[2]s%[3]s/"${0##*/}" "$@" ;;
esac
case $1 in
providers | ready) set -- --runner %[4]s "$@" ;;
esac
export THECLAW_HOME=%[7]s
exec %[8]s%[3]s/agentctl %[9]s "$@"
`, strings.Join(local, " | agentctl,"), as(s.Parts[0]), real, s.Target("runner"), s.Target("deliverer"), s.Parts[0].TLS,
		s.operator.Home, as(s.operator), strings.Join(s.Flags(), " "))
	check(t, os.WriteFile(filepath.Join(dir, "agentctl"), []byte(script), 0o755))
	check(t, os.Symlink("agentctl", filepath.Join(dir, "thread"))) // the script tells them apart
	for _, name := range []string{"agent", "agentd"} {
		check(t, os.Symlink(filepath.Join(real, name), filepath.Join(dir, name)))
	}
	return dir
}

// as begins a line of the shell whose command runs as the user of a part.
func as(p *Part) string {
	if p.user == 0 {
		return ""
	}
	return fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups ", p.user, p.user)
}
