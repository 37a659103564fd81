//go:build !linux && !netbsd

package lease

import "golang.org/x/sys/unix"

const clockMonotonic = unix.CLOCK_MONOTONIC
