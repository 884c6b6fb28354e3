#!/bin/sh
# Makes the user of the units, and lets systemd read them. A service that runs goes on with
# the programs that it has; it is for the administrator to say when it is restarted.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
  systemd-sysusers theclaw.conf
elif ! id theclaw >/dev/null 2>&1; then
  useradd --system --home-dir /var/lib/theclaw --shell /usr/sbin/nologin theclaw
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
