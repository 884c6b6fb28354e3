package wall

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedArch are the calls only this architecture has.
var refusedArch []uint32
