//go:build darwin || freebsd

package cmd

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID is the user at the other end of a socket.
func peerUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	const level = 0 // SOL_LOCAL
	uid := -1
	var got error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, got = unix.GetsockoptXucred(int(fd), level, unix.LOCAL_PEERCRED); got == nil {
			uid = int(cred.Uid)
		}
	})
	return uid, errors.Join(err, got)
}
