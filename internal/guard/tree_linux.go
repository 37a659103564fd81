package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stuckAfter is how long a process may live on after SIGKILL before it is reported: exits of large
	// processes take up to about a second.
	stuckAfter = 3 * time.Second
	// stuckAgain is how often it is reported again.
	stuckAgain = 10 * time.Second
	// Between rounds of killing. A round over nothing new costs about 50 µs; the pause doubles as long as
	// nothing happens, since what is left then waits for the kernel or cannot be killed at all.
	firstPause, lastPause = time.Millisecond, 250 * time.Millisecond
)

// A tree is everything that descends from this process, which must be a subreaper. Its direct children are
// reaped by this process only, so their numbers stay theirs until then.
type tree struct {
	self int
	skip func(pid int) bool // direct children that are no part of the tree

	pause     time.Duration
	firstKill time.Duration
	lastTold  time.Duration
	killed    map[int]bool
}

// member is a process with the parent it was found under.
type member struct{ pid, parent int }

func newTree(self int, skip func(int) bool) *tree {
	return &tree{self: self, skip: skip}
}

// members lists the tree, parents before children: a killed parent makes no more children.
func (t *tree) members() []member {
	var all []member
	seen := map[int]bool{t.self: true}
	grow := func(parent int) {
		for _, pid := range children(parent) {
			if !seen[pid] && !(parent == t.self && t.skip(pid)) {
				seen[pid] = true
				all = append(all, member{pid, parent})
			}
		}
	}
	grow(t.self)
	for i := 0; i < len(all); i++ { //nolint:intrange // all grows meanwhile
		grow(all[i].pid)
	}
	return all
}

// owns tells whether pid descends from this process now. The way up ends at a direct child of ours, whose
// number cannot have been reused.
func (t *tree) owns(pid int) bool {
	for range 1 << 16 { // a way up longer than any: processes that move while it is walked could make a circle
		s, ok := readStat(pid)
		if !ok || s.ppid <= 0 {
			return false
		}
		if s.ppid == t.self {
			return !t.skip(pid)
		}
		pid = s.ppid
	}
	return false
}

func (t *tree) send(m member, sig unix.Signal) error {
	if m.parent == t.self {
		return unix.Kill(m.pid, sig)
	}
	return pinned(m.pid, sig, t.owns)
}

// stop sends the stop signal to everything that lives now, and wakes what is stopped so that it can obey.
// What is started after that, by a shell's trap to clean up for instance, is not meant.
func (t *tree) stop(sig unix.Signal) {
	now := Now()
	told := map[int]bool{}
	// More than one pass, as processes that start in the middle of one hide from it.
	for range 3 {
		for _, m := range t.members() {
			s, ok := readStat(m.pid)
			if !ok || told[m.pid] || s.started() > now {
				continue
			}
			told[m.pid] = true
			t.send(m, sig)
			if s.state == 'T' {
				t.send(m, unix.SIGCONT)
			}
		}
	}
}

// killRound sends SIGKILL to the whole tree once, and returns a notice if something cannot be killed. It
// sets pause, the time after which the next round is due.
func (t *tree) killRound() *Notice {
	now := Now()
	if t.firstKill == 0 {
		t.firstKill, t.killed, t.pause = now, map[int]bool{}, 0
	}
	// The direct children first and without looking further: of processes that fork and end at once, the
	// living one is a direct child for a moment only.
	for _, pid := range children(t.self) {
		if !t.skip(pid) {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	var forbidden, alive []int
	news := false
	for _, m := range t.members() {
		err := t.send(m, unix.SIGKILL)
		if err == unix.EPERM {
			forbidden = append(forbidden, m.pid)
		} else if err == nil {
			alive = append(alive, m.pid)
		}
		if !t.killed[m.pid] {
			t.killed[m.pid], news = true, true
		}
	}
	if news {
		t.pause = 0
	} else {
		t.pause = min(max(2*t.pause, firstPause), lastPause)
	}
	return t.stuck(now, forbidden, alive)
}

func (t *tree) stuck(now time.Duration, forbidden, alive []int) *Notice {
	n := Notice{Kind: Stuck, PIDs: forbidden, Err: unix.EPERM}
	if len(forbidden) == 0 {
		n = Notice{Kind: Stuck, PIDs: alive}
	}
	overdue := len(forbidden) > 0 || now-t.firstKill >= stuckAfter
	if len(n.PIDs) == 0 || !overdue || (t.lastTold != 0 && now-t.lastTold < stuckAgain) {
		return nil
	}
	t.lastTold = now
	n.Names = processNames(n.PIDs)
	return &n
}

// reap collects what has ended, and stop reports too. It returns false once there is no child any more
// (ECHILD), which for a subreaper means no descendant.
func reap(each func(pid int, ws unix.WaitStatus)) bool {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED|unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		default:
			each(pid, ws)
		}
	}
}
