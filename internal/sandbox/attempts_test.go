//go:build linux

package sandbox

import "github.com/theclaw/agents/internal/testing/need"

// attempts are those a shell can make. New ones go at the end of their group.
var attempts = []attempt{
	// Files outside.
	{name: "read secret", shell: `cat "$T_SECRET"`},
	{name: "stat secret", shell: `stat "$T_SECRET"`, leaks: []Level{LevelReduced}},
	{name: "list directory outside", shell: `ls "$(dirname "$T_SECRET")"`},
	{name: "overwrite secret", shell: `echo x >"$T_SECRET"`},
	{name: "append to secret", shell: `echo x >>"$T_SECRET"`},
	{name: "truncate secret", shell: `truncate -s 0 "$T_SECRET"`},
	{name: "create outside", shell: `echo x >"$(dirname "$T_SECRET")/new" && test -e "$(dirname "$T_SECRET")/new"`},
	{name: "delete secret", shell: `test -e "$T_SECRET" && rm -f "$T_SECRET" && ! test -e "$T_SECRET"`},
	{name: "chmod outside", shell: `chmod 777 "$T_SECRET"`, leaks: []Level{LevelReduced}},
	{name: "chown outside", shell: `chown 0:0 "$T_SECRET"`},
	{name: "utimes outside", shell: `touch -c -d 2001-01-01 "$T_SECRET" && test -e "$T_SECRET"`, leaks: []Level{LevelReduced}},
	{name: "hard link to secret", shell: `ln "$T_SECRET" link && cat link`},
	{name: "symlink to secret", shell: `ln -s "$T_SECRET" link && cat link`},
	{name: "write through symlink", shell: `ln -s "$(dirname "$T_SECRET")" dir && echo x >dir/new && cat "$(dirname "$T_SECRET")/new"`},
	{name: "dot dot", shell: `cat "../../../../../../../..$T_SECRET"`},
	{name: "rename workdir away", shell: `mv "$PWD" "$PWD-moved"`},
	{name: "copy out with tar", shell: `tar -C / -cf secret.tar "${T_SECRET#/}"`},
	// The system.
	{name: "read shadow", shell: `cat /etc/shadow`},
	{name: "host's users", shell: `grep -q :/root: /etc/passwd`},
	{name: "write in /usr", shell: `echo x >/usr/bin/sandbox-test`},
	{name: "write in /etc", shell: `echo x >/etc/sandbox-test`},
	{name: "write in /", shell: `echo x >/sandbox-test`},
	{name: "mkdir in /", shell: `mkdir /sandbox-test`},
	{name: "replace bash", shell: `cp /bin/true /usr/bin/bash`},
	{name: "list /root", shell: `ls /root`},
	{name: "list /home", shell: `ls /home`},
	{name: "list /var", shell: `ls /var/log`},
	{name: "list /run", shell: `ls /run/*`},
	{name: "list /sys", shell: `ls /sys/kernel`},
	{name: "host's environment", shell: `env | grep T_CANARY`},
	// Devices and /proc.
	{name: "make block device", shell: `mknod disk b 8 0 && head -c 1 disk`},
	{name: "make memory device", shell: `mknod mem c 1 1 && head -c 1 mem`},
	{name: "kernel memory", shell: `head -c 1 /dev/mem || head -c 1 /proc/kcore`},
	{name: "kernel log", shell: `head -c 1 /dev/kmsg || dmesg | grep -q .`},
	{name: "disks", shell: `for d in /dev/vd* /dev/sd* /dev/nvme*; do head -c 1 "$d" && exit 0; done; exit 1`},
	{name: "core pattern", shell: `echo '|/tmp/x' >/proc/sys/kernel/core_pattern`},
	{name: "sysrq", shell: `echo h >/proc/sysrq-trigger`},
	{name: "oom score of init", shell: `echo 1000 >/proc/1/oom_score_adj`},
	{name: "root of init", shell: `cat "/proc/1/root$T_SECRET"`},
	{name: "cwd of init", shell: `ls /proc/1/cwd/`},
	{name: "descriptors of init", shell: `readlink /proc/1/fd/* | grep -q . || echo x >/proc/1/fd/4`},
	{name: "environment of init", shell: `tr '\0' '\n' </proc/1/environ | grep -q .`},
	{name: "memory of init", shell: `head -c 1 /proc/1/mem || exec 3<>/proc/1/mem`},
	{name: "environment outside", shell: `tr '\0' '\n' <"/proc/$T_PID/environ" | grep -q .`},
	{name: "command line outside", shell: `grep -q sleep "/proc/$T_PID/cmdline"`, leaks: []Level{LevelReduced}},
	{name: "root outside", shell: `cat "/proc/$T_PID/root$T_SECRET"`},
	{name: "inherited descriptor", shell: `for f in /proc/$$/fd/*; do case ${f##*/} in 0|1|2|255) ;; *) readlink "$f" && exit 0 ;; esac; done; exit 1`},
	// Processes.
	{name: "signal outside", shell: `kill -0 "$T_PID"`},
	{name: "kill outside", shell: `kill -9 "$T_PID"`},
	{name: "renice outside", shell: `renice -n 5 -p "$T_PID"`},
	{name: "limits outside", shell: `prlimit --pid "$T_PID" --nofile=10:10`},
	// Rights.
	{name: "setuid program", shell: `test "$(su -c 'id -u' </dev/null 2>/dev/null)" = 0`},
	{name: "effective capabilities", shell: `test -r /proc/self/status && ! grep -q '^CapEff:.0000000000000000$' /proc/self/status`},
	{name: "privileges can grow", shell: `test -r /proc/self/status && ! grep -q '^NoNewPrivs:.1$' /proc/self/status`},
	{name: "no seccomp", shell: `test -r /proc/self/status && ! grep -q '^Seccomp:.2$' /proc/self/status`},
	{name: "groups of the runner", shell: `id -G | grep -qw 0`, moot: true},
	{name: "hostname", shell: `hostname sandbox-test`},
	{name: "unshare program", shell: `unshare --user --map-root-user true`},
	{name: "nested bwrap", shell: `bwrap --unshare-user --ro-bind / / true 2>/dev/null`, needs: need.Bubblewrap},
	{name: "raise limits", shell: `ulimit -n 100000`},
}
