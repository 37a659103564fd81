package guard

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tell sends a message to the guard; false if it does not read or is gone.
func (g *Guard) tell(m message) bool {
	if g.line == nil {
		return false
	}
	g.seq++
	m.seq = g.seq
	return g.line.send(m)
}

// demand sends an order that must be acted on soon: a guard that does not answer is killed, and then the
// tree. An order that cannot even be sent counts as not answered.
func (g *Guard) demand(kind byte) {
	if g.phase != starting && g.phase != running {
		return
	}
	if kind == msgStop || kind == msgKill {
		g.stopped = true
	}
	g.killed = g.killed || kind == msgKill
	now := Now()
	g.tell(message{kind: kind})
	g.expect(now + g.patience(now))
}

// expect has the guard answer the latest message by an instant.
func (g *Guard) expect(by time.Duration) {
	g.asked = g.seq
	if g.answerBy == 0 || by < g.answerBy {
		g.answerBy = by
	}
	// If it is merely stopped, it shall not stay so.
	unix.Kill(g.guard, unix.SIGCONT)
}

// patience is how long an answer may take: three quarters of what is left to the Kill deadline. The rest is
// for killing the guard and the tree, with what the lease has between Kill and its end (50 ms at least) in
// reserve.
func (g *Guard) patience(now time.Duration) time.Duration {
	if g.deadlines.Kill == 0 || g.disarmed {
		return patience
	}
	return min(max((g.deadlines.Kill-now)*3/4, minPatience), patience)
}

func (g *Guard) lose() {
	if g.phase != starting && g.phase != running {
		return
	}
	switch g.cfg.OnLost {
	case LostSignal, LostWarn:
		g.disarmed = true
		g.schedule(Now())
	default:
		g.stopped = true
	}
	g.demand(msgLost)
}

func (g *Guard) extend(d Deadlines) {
	now := Now()
	if g.phase != starting && g.phase != running || g.stopped || g.disarmed || g.overdue(now) {
		return
	}
	g.deadlines = d
	g.schedule(now)
	m := message{kind: msgExtend, n: [numbers]int64{int64(d.Stop), int64(d.Kill)}}
	g.unsent = nil
	if !g.tell(m) {
		g.unsent = &m
	}
}

// schedule plans the questions to the guard and arms the timers that wake this process from a stop.
func (g *Guard) schedule(now time.Duration) {
	if g.disarmed || g.deadlines.Stop == 0 {
		g.askAt = 0
		g.stopAt.set(0)
		g.killAt.set(0)
		return
	}
	g.askAt = 0
	if g.cfg.OnLost == LostStop || g.cfg.OnLost == LostKill {
		g.askAt = g.deadlines.Stop - min(maxLead, max(g.deadlines.Stop-now, 0)/2)
	}
	g.stopAt.set(g.deadlines.Stop)
	g.killAt.set(g.deadlines.Kill)
}

func (g *Guard) overdue(now time.Duration) bool {
	return g.deadlines.Stop != 0 && !g.disarmed && now >= g.deadlines.Stop
}

// watch sees to it that the guard answers, and ends the tree if there is no guard.
func (g *Guard) watch(now time.Duration) {
	if g.phase == ending {
		g.endTree(now)
		return
	}
	if g.hungUp {
		if g.guard != 0 && g.answerBy != 0 && now >= g.answerBy {
			unix.Kill(g.guard, unix.SIGKILL)
			g.answerBy = 0
		}
		return
	}
	if g.phase != starting && g.phase != running {
		return
	}
	g.freeFork(now)
	if g.unsent != nil && g.tell(*g.unsent) {
		g.unsent = nil
	}
	if g.overdue(now) {
		g.stopAt.set(0) // it has done its work; the one for Kill goes on
		if g.cfg.OnLost == LostSignal || g.cfg.OnLost == LostWarn {
			g.disarmed = true // as in the guard
			g.schedule(now)
		}
	}
	if g.askAt != 0 && now >= g.askAt {
		g.ask(now)
	}
	if g.answerBy != 0 && now >= g.answerBy {
		g.lostGuard()
	}
}

// ask puts the question that a guard has to answer: before Stop, by Stop; at Kill, soon. A wrapper that was
// itself asleep until after Stop grants the usual patience from now on.
func (g *Guard) ask(now time.Duration) {
	by := max(g.deadlines.Stop, now+g.patience(now))
	if now < g.deadlines.Stop {
		by = g.deadlines.Stop
	}
	if now < g.deadlines.Kill {
		g.askAt = g.deadlines.Kill
	} else {
		g.askAt = 0
	}
	g.tell(message{kind: msgPing})
	g.expect(by)
}

// lookAtGuard resumes a guard that was stopped. There is no reason to stop one alone; while it is, nobody
// notices the job's end.
func (g *Guard) lookAtGuard() {
	if g.guard == 0 {
		return
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, g.guard, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && info.Signo != 0 {
		unix.Kill(g.guard, unix.SIGCONT)
	}
}

// reapGuard collects the guard process if it has ended.
func (g *Guard) reapGuard() bool {
	pid, err := unix.Wait4(g.guard, nil, unix.WNOHANG, nil)
	if pid != g.guard && err != unix.ECHILD {
		return false
	}
	g.noGuard()
	return true
}

// noGuard: the guard process was reaped.
func (g *Guard) noGuard() {
	setGuard(g.guard, false)
	unix.Close(g.guardFD)
	g.guard, g.guardFD = 0, -1
}

// relaunch starts a guard process, the first one or one in the place of another that died before it had a job.
func (g *Guard) relaunch() {
	if g.launches++; g.closing || g.launches > maxLaunches {
		g.failure = errors.New("it died again and again")
		return
	}
	g.failure = g.spawn()
}

// lostGuard: the guard is dead, or as good as dead. A job may be running; it is ended here.
//
// The kernel kills the first process when the guard dies. The others become children of this process, but
// only after the line was closed; so the rounds go on until there is no child, and the guard is one until
// it is reaped, which is possible only after its children were handed over.
func (g *Guard) lostGuard() {
	if g.guard != 0 {
		unix.Kill(g.guard, unix.SIGKILL)
	}
	if !g.ready {
		g.lastWords()
	}
	unix.Close(g.line.fd)
	unix.Close(g.lifetime)
	g.line = nil
	g.answerBy, g.askAt, g.freeAt, g.unsent = 0, 0, 0, nil
	if g.phase == waiting || !g.ready || g.toSend != nil {
		g.replaceGuard()
		return
	}
	g.ready = false
	g.phase = ending
	g.status.GuardDied = true
	g.notify(Notice{Kind: GuardDied})
	g.answerJob(ErrGuardDied)
	own := g.guard
	g.tree = newTree(os.Getpid(), func(pid int) bool { return pid != own && isGuard(pid) })
}

// lastWords waits for the end of a guard that was killed, and looks whether it came up before that. It says so
// before it reads an order, so one that did not has started nothing.
func (g *Guard) lastWords() {
	g.waitForGuard()
	for {
		m, err := g.line.receive()
		if err != nil {
			return
		}
		closeAll(m.files)
		g.ready = g.ready || m.kind == msgReady
	}
}

// waitForGuard reaps a killed guard; it has nothing to delay its end.
func (g *Guard) waitForGuard() {
	if g.guard != 0 {
		retry(func() (int, error) { return unix.Wait4(g.guard, nil, 0, nil) })
		g.noGuard()
	}
}

// replaceGuard puts another guard in the place of a dead one that had no job, and gives it the order that one did
// not read, if it is still wanted.
func (g *Guard) replaceGuard() {
	g.waitForGuard()
	if g.toSend == nil {
		g.toSend = g.unread
	}
	g.ready, g.unread = false, nil
	if g.relaunch(); g.toSend == nil {
		return
	}
	switch d := g.deadlines; {
	case g.failure != nil:
		g.notStarted(errors.Join(ErrGuardDied, g.failure))
	case g.stopped:
		g.notStarted(errNotWanted)
	default:
		g.toSend.n[0], g.toSend.n[1] = int64(d.Stop), int64(d.Kill)
		g.sendOrder()
	}
}

// errNotWanted is why an order was not carried out that was taken back before the guard had it.
var errNotWanted = errors.New("stopped before the start")

// sleep is how long nothing will be due; negative for ever.
func (g *Guard) sleep(now time.Duration) time.Duration {
	var next time.Duration
	for _, at := range []time.Duration{g.askAt, g.answerBy, g.strayAt, g.freeAt} {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if g.phase == ending {
		next = g.nextRound
	} else if g.unsent != nil {
		next = now + minPatience
	}
	if next == 0 {
		return -1
	}
	return max(next-now, 0)
}
