package isolation

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedArch are the calls only this architecture has.
var refusedArch []uint32

// makersArch are the calls only this architecture has that give a file its mode.
var makersArch []maker
