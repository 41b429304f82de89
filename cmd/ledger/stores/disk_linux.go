package stores

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystems maps the magic number that statfs reports to the name of a file system.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "zfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.FUSE_SUPER_MAGIC: "fuse",
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "ceph", unix.AFS_SUPER_MAGIC: "afs", 0x0bd00bd0: "lustre",
}

// networks contains the names of network file systems.
var networks = map[string]bool{"nfs": true, "smb": true, "smb2": true, "cifs": true, "9p": true, "ceph": true, "afs": true, "lustre": true}

// DiskOf describes the file system of a folder. It returns the zero Disk if statfs fails.
func DiskOf(dir string) Disk {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return Disk{}
	}
	kind, ok := fileSystems[int64(s.Type)]
	if !ok {
		kind = fmt.Sprintf("0x%x", s.Type)
	}
	free, total := int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize
	return Disk{Type: &kind, Network: networks[kind], Free: &free, Total: &total}
}
