package guard

import (
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

const (
	// The process names of a guard that has no job yet, of one that has, and of one whose job does not lead; the
	// kernel keeps 15 bytes.
	waitingName = "guard-waiting"
	holdingName = "guard-holding"
	standbyName = "guard-standby"

	// leftoverGrace is how long what the first process left may take to end by itself: a tee behind a shell
	// has to drain its pipe.
	leftoverGrace = 300 * time.Millisecond
	// highestPriority is the lowest value of nice(2).
	highestPriority = -20
	// farewell is how long a guard whose job is done waits for the wrapper to hear of it.
	farewell = 2 * time.Second
)

// reexecuted reports whether this process was started as a guard.
func reexecuted() bool {
	if len(os.Args) != 2 || os.Args[0] != early.GuardName {
		return false
	}
	kind, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

// A guard lives its whole life here. The runtime keeps the main goroutine on the main thread as long as the
// program is initialised, and on that thread it has to be: the name of a process is the name of its main thread,
// and the parent-death signal of a job belongs to the thread that forked it. Besides, what has not been
// initialised yet need not be.
func init() {
	if !reexecuted() {
		return
	}
	k, err := newKeeper()
	if err != nil {
		os.Stderr.WriteString("mutex guard: " + err.Error() + "\n")
		os.Exit(1)
	}
	k.run()
	syscall.Exit(0) // there is nothing to tidy, and a wrapper waits
}

// A keeper is the guard process: one loop on the main thread, which waits in poll and nowhere else.
type keeper struct {
	line     *line
	wake     waker
	signals  int  // descriptor that tells of an alarm
	alone    bool // the wrapper is gone
	stopAt   alarm
	killAt   alarm
	pauses   bool // the first process was stopped and this has not been told
	paused   syscall.Signal
	answered uint32

	job
}

func newKeeper() (*keeper, error) {
	// The line came as descriptor 0 and the lifetime pipe as 1. They move out of the way of the job's own;
	// the pipe is only held, its end tells the wrapper of this process's death.
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if _, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := nullStdio(0, 1); err != nil {
		return nil, err
	}
	setName(waitingName)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	k := &keeper{line: newLine(fd), stopAt: newAlarm(), killAt: newAlarm()}
	if k.signals, err = takeGuardSignals(); err != nil {
		return nil, err
	}
	if k.wake, err = newWaker(); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	k.job.tree = newTree(os.Getpid(), func(int) bool { return false })
	k.job.tell = k.tellNotice
	k.job.pidfd = -1
	k.line.send(message{kind: msgReady})
	return k, nil
}

func (k *keeper) run() {
	for {
		// Messages before deadlines: a guard that was stopped may have newer ones waiting.
		k.hear()
		if k.alone && k.pid == 0 {
			return
		}
		if k.pid != 0 {
			if !reap(k.collect) {
				break
			}
			if k.tellPause(); !k.act(Now()) {
				break
			}
			k.stopAt.set(k.stopAlarm())
			k.killAt.set(k.killAlarm())
		}
		fd := k.line.fd
		if k.alone {
			fd = -1 // a closed line would wake us for ever
		}
		k.wake.poll(k.sleep(Now()), k.signals, fd, k.pidfd)
		drainSignals(k.signals)
	}
	k.finish()
}

// hear acts on all messages that wait, and answers once.
func (k *keeper) hear() {
	for !k.alone {
		m, err := k.line.receive()
		if err == errNothing {
			break
		}
		if err != nil {
			k.alone = true
			if k.pid != 0 {
				k.orphaned(Now())
			}
			return
		}
		k.obey(m)
		k.answered = max(k.answered, m.seq)
	}
	if k.answered != 0 && !k.alone && k.line.send(message{kind: msgAck, seq: k.answered}) {
		k.answered = 0
	}
}

func (k *keeper) obey(m message) {
	now := Now()
	switch {
	case m.kind == msgStart && k.pid == 0:
		k.begin(m)
		return
	case m.kind == msgHold && k.pid != 0:
		k.holds = append(k.holds, m.files...)
		return
	case (m.kind == msgLead || m.kind == msgDown || m.kind == msgLetGo) && k.pid != 0:
		k.tellJob(m, now)
		return
	}
	closeAll(m.files)
	if k.pid == 0 {
		return
	}
	switch m.kind {
	case msgExtend:
		k.extend(Deadlines{time.Duration(m.n[0]), time.Duration(m.n[1])})
	case msgStop:
		k.stop(now)
	case msgKill:
		k.kill()
	case msgLost:
		k.lost(now)
	case msgSignal:
		k.signal(syscall.Signal(m.n[0]))
	}
}

// begin starts the job. The answer is sent before this process leaves the caller's session, so nothing
// hangs on that.
func (k *keeper) begin(m message) {
	if len(m.files) < 3 {
		closeAll(m.files)
		k.line.send(message{kind: msgFailed, n: [numbers]int64{int64(unix.EINVAL)}})
		return
	}
	if k.line.closed() {
		// It was killed while this process came up. What it ordered is not begun in order to be ended.
		closeAll(m.files)
		k.alone = true
		return
	}
	k.holds = m.files[3:]
	setTag(m.text)
	order, err := unpackOrder(m.files[0]) // closes it
	if err == nil {
		err = k.start(m, order, m.files[1], m.files[2])
	}
	closeAll(m.files[1:3])
	if err != nil {
		k.abandon(err)
		return
	}
	k.line.send(message{kind: msgStarted, n: [numbers]int64{int64(k.pid)}})
	k.retire()
}

func (k *keeper) abandon(err error) {
	setName(waitingName)
	nullStdio(0, 1)
	closeAll(k.holds)
	k.holds = nil
	if err == ErrLate {
		k.line.send(message{kind: msgLate})
		return
	}
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = unix.EIO
	}
	k.line.send(message{kind: msgFailed, n: [numbers]int64{int64(errno)}})
}

// retire leaves the caller's session and everything that was inherited for the job, so that neither a group
// kill nor a hang-up of the terminal reaches this process and no reader of the job's output waits for it.
func (k *keeper) retire() {
	go k.hearChildren()
	unix.Setsid()
	nullStdio(0, 1, 2)
	for _, fd := range numbered("/proc/self/fd") {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd) // all of our own are close-on-exec
		}
	}
	unix.Chdir("/")
	// This thread hardly ever runs, and has to when a deadline passes on a machine that is busy. Only root may
	// ask for that.
	unix.Setpriority(unix.PRIO_PROCESS, 0, highestPriority)
}

func (k *keeper) tellNotice(n Notice) {
	errno, _ := n.Err.(syscall.Errno)
	k.line.send(message{kind: msgNotice, n: [numbers]int64{int64(n.Kind), int64(errno)}, text: packProcesses(n.PIDs, n.Names)})
}

// collect takes note of an ended or stopped child.
func (k *keeper) collect(pid int, ws unix.WaitStatus) {
	if pid != k.pid {
		return
	}
	if ws.Stopped() {
		k.pauses, k.paused = true, ws.StopSignal()
		return
	}
	k.ended(Now(), syscall.WaitStatus(ws))
	if k.pidfd >= 0 {
		unix.Close(k.pidfd)
		k.pidfd = -1
	}
	k.line.send(message{kind: msgEnded, n: k.result()})
}

func (k *keeper) tellPause() {
	if k.pauses && !k.alone {
		k.pauses = !k.line.send(message{kind: msgPaused, n: [numbers]int64{int64(k.paused)}})
	}
}

// finish reports that the tree is gone, or was let go. Descriptors that carry locks are closed before.
func (k *keeper) finish() {
	closeAll(k.holds)
	setName(waitingName)
	k.stopAt.drop()
	k.killAt.drop()
	done := message{kind: msgDone, n: k.result(), text: packProcesses(k.left, processNames(k.left))}
	var deadline time.Duration
	for !k.alone && (deadline == 0 || Now() < deadline) {
		if deadline == 0 && k.line.send(done) {
			deadline = Now() + farewell
		}
		// A wrapper that has heard closes the line. Until then the let-go processes stay ours: it wants to
		// stop being a subreaper first.
		switch m, err := k.line.receive(); {
		case err == nil:
			closeAll(m.files)
		case err == errNothing:
			poll(10*time.Millisecond, k.line.fd)
		default:
			k.alone = true
		}
	}
}

// setTag writes the tag over its place holder. The runtime's arguments are the very memory that
// /proc/PID/cmdline shows.
func setTag(tag string) {
	room := unsafe.Slice(unsafe.StringData(os.Args[1]), len(os.Args[1]))
	clear(room[copy(room, tag):])
}

// setName sets the name of this thread, which is the main one and so that of the process.
func setName(name string) {
	b, _ := unix.ByteSliceFromString(name)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// nullStdio puts /dev/null in the place of descriptors.
func nullStdio(fds ...int) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	for _, fd := range fds {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return os.NewSyscallError("dup to "+strconv.Itoa(fd), err)
		}
	}
	return nil
}
