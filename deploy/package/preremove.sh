#!/bin/sh
# Stops and disables the services before their programs are removed. An upgrade, for which
# dpkg gives the word `upgrade` and rpm the number 1, leaves them running.
set -e
case ${1-} in
remove | 0) ;;
*) exit 0 ;;
esac
if command -v systemctl >/dev/null 2>&1; then
  # Of a template, all instances are disabled. The removal does not fail over a unit.
  systemctl disable theclaw.service theclaw-runner@.service theclaw-prune.timer || true
fi
if [ -d /run/systemd/system ]; then
  systemctl stop theclaw-prune.timer theclaw-prune.service 'theclaw-runner@*.service' theclaw.service || true
fi
