package ondisk

import (
	"os"

	"golang.org/x/sys/unix"
)

// local are filesystems whose syncfs waits for the disk. Of one that asks a server
// (FUSE, 9P) the kernel promises less.
var local = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
}

// reaches tells whether whole brings everything of dir's filesystem to disk.
func reaches(dir *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &st) == nil && local[st.Type]
}

// whole syncs the filesystem of dir.
func whole(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
