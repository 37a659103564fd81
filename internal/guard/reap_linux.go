package guard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endTree is one round of killing everything that descends from this process, other guards aside. Processes
// that the program started itself are not told apart from those of the job.
func (g *Guard) endTree(now time.Duration) {
	none := g.collect()
	if none = none && g.collect(); none { // also after what the first look reaped has handed over its own
		g.finish()
		if g.pending != nil {
			g.pending <- startAnswer{err: ErrGuardDied}
			g.pending = nil
		}
		return
	}
	if now < g.nextRound {
		return
	}
	if n := g.tree.killRound(); n != nil {
		g.notify(*n)
	}
	g.nextRound = now + g.tree.pause
}

// collect reaps what has ended and reports whether no child is left, by the word of the kernel unless there
// are other guards.
func (g *Guard) collect() (none bool) {
	for _, pid := range children(os.Getpid()) {
		if g.tree.skip(pid) {
			continue
		}
		var ws unix.WaitStatus
		if got, err := unix.Wait4(pid, &ws, unix.WNOHANG|unix.WALL, nil); err != nil || got != pid {
			continue
		}
		switch {
		case pid == g.guard:
			g.noGuard()
		case pid == g.pid && !g.known:
			g.known, g.status.Known, g.status.Stopped = true, true, true
			g.status.Code, g.status.Signal = statusOf(syscall.WaitStatus(ws))
		}
	}
	err := unix.Waitid(unix.P_ALL, 0, &unix.Siginfo{}, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	if err == unix.ECHILD {
		if g.guard != 0 {
			g.noGuard()
		}
		return true
	}
	for _, pid := range children(os.Getpid()) {
		if !g.tree.skip(pid) {
			return false
		}
	}
	return g.guard == 0
}

// clean reaps orphans that this process inherited: as PID 1 it gets those of the whole container.
func (g *Guard) clean(now time.Duration) {
	if g.phase == ending || g.strayAt == 0 || now < g.strayAt {
		return
	}
	g.strayAt = 0
	seen := map[int]time.Duration{}
	for _, pid := range children(os.Getpid()) {
		if isGuard(pid) {
			continue
		}
		if s, ok := readStat(pid); !ok || s.state != 'Z' {
			continue
		}
		first, ok := g.strays[pid]
		if !ok {
			first = now
		}
		if now-first >= strayAge {
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		seen[pid] = first
		g.strayAt = now + strayAge
	}
	g.strays = seen
}

// reapStrays has clean look at once.
func (g *Guard) reapStrays() { g.strayAt = 1 }
