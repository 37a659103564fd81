package guard

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, the unit of start times in /proc/PID/stat: 100 on every architecture Go runs on.
const ticksPerSecond = 100

// stat is what is needed of /proc/PID/stat.
type stat struct {
	state byte
	ppid  int
	pgrp  int
	tty   int // device number of the controlling terminal; zero without one
	tpgid int // foreground process group of that terminal
	ticks int64
}

// started is when the process started, as a reading of Now, rounded down to a tick.
func (s stat) started() time.Duration {
	return time.Duration(s.ticks) * (time.Second / ticksPerSecond)
}

func readStat(pid int) (s stat, ok bool) {
	b, err := readProc(pid, "stat")
	if err != nil {
		return s, false
	}
	// The name is in parentheses and may hold anything, parentheses too.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, false
	}
	f := bytes.Fields(b[i+1:])
	const state, ppid, pgrp, tty, tpgid, start = 0, 1, 2, 4, 5, 19
	if len(f) <= start {
		return s, false
	}
	s.state = f[state][0]
	s.ppid = atoi(f[ppid])
	s.pgrp = atoi(f[pgrp])
	s.tty = atoi(f[tty])
	s.tpgid = atoi(f[tpgid])
	s.ticks, _ = strconv.ParseInt(string(f[start]), 10, 64)
	return s, true
}

func atoi(b []byte) int {
	n, _ := strconv.Atoi(string(b))
	return n
}

// Handles tells whether a process catches, blocks or ignores a signal, so that it does not end of it. A program may
// catch it without having decided what to do then (one in Go catches everything from its start on). What a program
// waits for with sigwait the kernel does not show as blocked meanwhile; it is taken to wait for this one.
func Handles(pid int, sig syscall.Signal) (bool, error) {
	b, err := readProc(pid, "status")
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "SigBlk", "SigIgn", "SigCgt":
			set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
			if err == nil && set&(1<<(uint(sig)-1)) != 0 {
				return true, nil
			}
		}
	}
	b, _ = readProc(pid, "syscall") // "running", or the number of the call; not everybody may look
	number, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte(" "))
	return string(number) == strconv.Itoa(unix.SYS_RT_SIGTIMEDWAIT), nil
}

// readProc reads a file of a process by raw system calls: os.ReadFile would register each descriptor with
// the poller, and rounds of killing read hundreds.
func readProc(pid int, name string) ([]byte, error) {
	return readRaw("/proc/" + strconv.Itoa(pid) + "/" + name)
}

func readRaw(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return b, err
		}
		if n <= 0 {
			return b, nil
		}
		b = b[:len(b)+n]
	}
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// numbered lists the entries of a directory under /proc that are numbers.
func numbered(dir string) []int {
	fd, err := retry(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var all []int
	buf := make([]byte, 8192)
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil || n <= 0 {
			return all
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if id, err := strconv.Atoi(name); err == nil {
				all = append(all, id)
			}
		}
	}
}

// children lists the processes whose parent is pid. One may be missing if others end at the same time, so
// that only wait4 can say that there is none.
func children(pid int) []int {
	task := "/proc/" + strconv.Itoa(pid) + "/task"
	var all []int
	for _, tid := range numbered(task) {
		b, err := readRaw(task + "/" + strconv.Itoa(tid) + "/children")
		if err == unix.ENOENT && !haveChildrenFile() {
			return childrenByStat(pid)
		}
		for _, f := range bytes.Fields(b) {
			all = append(all, atoi(f))
		}
	}
	return all
}

// haveChildrenFile is false on a kernel built without CONFIG_PROC_CHILDREN.
func haveChildrenFile() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}

func childrenByStat(pid int) []int {
	var all []int
	for _, p := range numbered("/proc") {
		if s, ok := readStat(p); ok && s.ppid == pid {
			all = append(all, p)
		}
	}
	return all
}

func processName(pid int) string {
	b, err := readProc(pid, "comm")
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(b), "\n")
}

func processNames(pids []int) []string {
	names := make([]string, len(pids))
	for i, pid := range pids {
		names[i] = processName(pid)
	}
	return names
}

// pinned sends a signal to a process that is no child of ours. The process is pinned by a descriptor first
// and looked at after, so that its number cannot be handed to a stranger in between.
func pinned(pid int, sig unix.Signal, isIt func(pid int) bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ENOSYS {
		// Linux before 5.3, some sandboxes: there remains a moment in which the number could be reused.
		if !isIt(pid) {
			return unix.ESRCH
		}
		return unix.Kill(pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !isIt(pid) {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}
