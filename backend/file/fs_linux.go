package file

import "golang.org/x/sys/unix"

var networkMagic = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.NCP_SUPER_MAGIC:  "NCP",
	unix.V9FS_MAGIC:       "9p",
	0x0bd00bd0:            "Lustre",
	0x01161970:            "GFS2",
	0x7461636f:            "OCFS2",
	0x786f4256:            "vboxsf",
}

// networkFS names the kind of network file system that path is on; empty: none.
func networkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	return networkMagic[uint32(st.Type)], nil
}
