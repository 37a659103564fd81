package guard

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A job is the guard's knowledge of what it started, and the decisions about it. Only the guard's loop uses it.
type job struct {
	tree  *tree
	tell  func(Notice)
	holds []int // descriptors with kernel locks

	pid      int // of the first process; zero before the start
	pidfd    int // tells of its end sooner than SIGCHLD, which goes through the runtime; -1 if there is none
	gone     bool
	status   syscall.WaitStatus
	stopped  bool // stopping had begun when the first process ended
	toldStop bool // a stop signal was passed on, and no CONT since
	left     []int
	leaveAt  time.Duration // when leftovers are looked at
	released bool          // LeftoverLeave: the guard's work is over

	sig       syscall.Signal
	killAfter time.Duration
	onLost    OnLost
	leftover  Leftover
	deadlines Deadlines

	disarmed  bool          // LostSignal, LostWarn: no deadline any more
	missed    bool          // the Stop deadline has been acted on
	stopping  bool          // the stop signal went out and SIGKILL will follow
	killTime  time.Duration // when
	killing   bool
	nextRound time.Duration
}

// start forks the first process, unless it is too late. It stays in the caller's process group and session:
// it has to share the terminal's signals and job control with the rest of its pipeline.
func (j *job) start(m message, o Order, stdin, stdout int) error {
	j.sig = syscall.Signal(m.n[3])
	j.killAfter = time.Duration(m.n[4])
	j.onLost, j.leftover = OnLost(m.n[5]>>8&0xff), Leftover(m.n[5]&0xff)
	j.deadlines = Deadlines{time.Duration(m.n[0]), time.Duration(m.n[1])}

	// The job's descriptors are put in place here and not by ForkExec, which would need free numbers for
	// moving them and might take one that the job inherits from the caller.
	for fd, file := range []int{stdin, stdout} {
		if err := unix.Dup3(file, fd, 0); err != nil {
			return err
		}
	}
	if m.n[5]&standbyFlag == 0 {
		setName(holdingName)
	} else {
		setName(standbyName)
	}
	if now := Now(); passed(time.Duration(m.n[2]), now) || passed(j.deadlines.Stop, now) {
		return ErrLate
	}
	j.pidfd = -1
	return withMask(unix.SIG_UNBLOCK, guardMask(), func() (err error) {
		j.pid, err = syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{
			Env:   stamped(o),
			Files: []uintptr{0, 1, 2},
			Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, PidFD: &j.pidfd},
		})
		return err
	})
}

// stamped is the environment with this process's name in it.
func stamped(o Order) []string {
	if o.Stamp == "" {
		return o.Env
	}
	self, _ := readStat(os.Getpid())
	return append(o.Env, fmt.Sprintf("%s%d:%d", o.Stamp, os.Getpid(), self.ticks))
}

// passed tells whether an instant that may be missing is over.
func passed(at, now time.Duration) bool { return at != 0 && now >= at }

func (j *job) extend(d Deadlines) {
	if !j.stopping && !j.killing && !j.missed && !j.disarmed {
		j.deadlines = d
	}
}

// stop begins the end: the stop signal now, SIGKILL after KillAfter, but at the Kill deadline at the latest.
func (j *job) stop(now time.Duration) {
	if j.stopping || j.killing {
		return
	}
	j.stopping = true
	j.killTime = now + j.killAfter
	if j.deadlines.Kill != 0 && !j.disarmed {
		j.killTime = min(j.killTime, j.deadlines.Kill)
	}
	j.tree.stop(j.sig)
}

// kill begins the rounds of killing. The first process goes at once: what comes after has to be looked for,
// which takes time that a loaded machine may not give soon.
func (j *job) kill() {
	if !j.killing && !j.gone {
		unix.Kill(j.pid, unix.SIGKILL)
	}
	j.killing = true
}

// lost is what happens when the mutex is no longer ours.
func (j *job) lost(now time.Duration) {
	switch {
	case j.stopping || j.killing || j.disarmed:
		if j.onLost == LostKill {
			j.kill()
		}
	case j.onLost == LostStop:
		j.stop(now)
	case j.onLost == LostKill:
		j.kill()
	case j.onLost == LostSignal:
		j.disarmed = true
		j.tree.stop(j.sig)
	case j.onLost == LostWarn:
		j.disarmed = true
	}
}

// orphaned: the wrapper is gone, nobody renews the lease. The job ends whatever OnLost says.
func (j *job) orphaned(now time.Duration) { j.stop(now) }

func (j *job) signal(sig syscall.Signal) {
	if j.gone {
		return
	}
	switch sig {
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGSTOP:
		j.toldStop = true
	case unix.SIGCONT:
		// Only what is stopped, or is about to be, is continued: a CONT too many would make a stopped-again
		// process run in the background.
		if s, ok := readStat(j.pid); !j.toldStop && (!ok || s.state != 'T') {
			return
		}
		j.toldStop = false
	}
	unix.Kill(j.pid, sig)
}

func (j *job) ended(now time.Duration, ws syscall.WaitStatus) {
	j.gone, j.status, j.stopped = true, ws, j.stopping || j.killing
	j.leaveAt = now + leftoverGrace
}

func (j *job) result() [numbers]int64 {
	r := [numbers]int64{int64(j.status), 0, 0}
	if j.stopped {
		r[1] = 1
	}
	if j.gone {
		r[2] = 1
	}
	return r
}

// act does what is due. It returns false when the guard's work is over although something of the job may live.
func (j *job) act(now time.Duration) bool {
	if d := j.deadlines.Stop; d != 0 && now >= d && !j.missed && !j.disarmed && !j.stopping && !j.killing {
		j.missed = true
		j.tell(Notice{Kind: DeadlineHit})
		j.lost(now)
	}
	if j.leaveAt != 0 && now >= j.leaveAt && !j.stopping && !j.killing {
		j.leaveAt = 0
		if j.leave(now); j.released {
			return false
		}
	}
	switch {
	case j.stopping && now >= j.killTime:
		j.kill()
	case j.deadlines.Kill != 0 && now >= j.deadlines.Kill && !j.disarmed:
		j.kill()
	}
	if j.killing && now >= j.nextRound {
		if n := j.tree.killRound(); n != nil {
			j.tell(*n)
		}
		j.nextRound = now + j.tree.pause
	}
	return true
}

// leave decides about what the first process left running.
func (j *job) leave(now time.Duration) {
	var pids []int
	for _, m := range j.tree.members() {
		if s, ok := readStat(m.pid); ok && s.state != 'Z' {
			pids = append(pids, m.pid)
		}
	}
	if len(pids) == 0 {
		j.leaveAt = now + leftoverGrace // ending right now, or hidden from this look; wait4 knows
		return
	}
	j.tell(Notice{Kind: Leftovers, PIDs: pids, Names: processNames(pids)})
	switch j.leftover {
	case LeftoverStop:
		j.stop(now)
	case LeftoverLeave:
		j.left, j.released = pids, true
	}
}

// stopAlarm and killAlarm are when a stopped guard must be awake; zero means never.
func (j *job) stopAlarm() time.Duration {
	if j.missed || j.disarmed || j.stopping || j.killing {
		return 0
	}
	return j.deadlines.Stop
}

func (j *job) killAlarm() time.Duration {
	switch {
	case j.stopping:
		return j.killTime
	case j.disarmed:
		return 0
	}
	return j.deadlines.Kill
}

// sleep is how long nothing will be due; negative for ever.
func (j *job) sleep(now time.Duration) time.Duration {
	var next time.Duration
	consider := func(at time.Duration) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if j.pid == 0 {
		return -1
	}
	consider(j.stopAlarm())
	if j.killing {
		consider(j.nextRound)
	} else {
		consider(j.killAlarm())
	}
	if !j.stopping && !j.killing {
		consider(j.leaveAt)
	}
	if next == 0 {
		return -1
	}
	return max(next-now, 0)
}
