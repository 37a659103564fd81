//go:build darwin || freebsd

package file

import "golang.org/x/sys/unix"

// networkFS says whether path is on a file system that is not local.
func networkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "not local", nil
	}
	return "", nil
}
