package isolation

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// refusedArch are the calls only this architecture has.
var refusedArch = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_SYSFS,
	unix.SYS_USTAT, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

// makersArch are the calls only this architecture has that give a file its mode.
var makersArch = []maker{
	{unix.SYS_CHMOD, 1, -1}, {unix.SYS_MKDIR, 1, -1}, {unix.SYS_MKNOD, 1, -1}, {unix.SYS_CREAT, 1, -1}, {unix.SYS_OPEN, 2, 1},
}
