#!/bin/sh
# The agents in /var/lib/theclaw and their user are kept, also by `dpkg --purge`.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
