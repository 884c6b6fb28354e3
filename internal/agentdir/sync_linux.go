package agentdir

import (
	"os"

	"golang.org/x/sys/unix"
)

// localFilesystems are those whose syncfs waits for the disk. For one that asks a server
// (FUSE, 9P) the kernel promises less.
var localFilesystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
}

// filesystemSyncs reports whether syncFilesystem brings everything on dir's filesystem to disk.
func filesystemSyncs(dir *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &st) == nil && localFilesystems[st.Type]
}

// syncFilesystem syncs the filesystem that dir is on.
func syncFilesystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
