package guard

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// phase is how far a supervisor has come.
type phase int

const (
	waiting  phase = iota // the guard process has no job
	starting              // it was ordered to start one
	running
	ending   // the guard is dead and the wrapper ends the tree itself
	finished // the tree is gone
)

const (
	// maxLaunches bounds how often a guard that dies before it had a job is replaced. A key on the terminal
	// can kill one that has not yet set up its handlers; more than a few deaths mean something else.
	maxLaunches = 3
	// patience is how long an answer may take when no deadline is near: longer than a machine that swaps
	// keeps a process waiting.
	patience = 5 * time.Second
	// minPatience is what a healthy guard needs at worst to answer on a machine with two busy loops a core.
	minPatience = 20 * time.Millisecond
	// maxLead is how long before Stop a guard is asked whether it is there.
	maxLead = time.Second
	// startSlack is how long the fork of a job takes at most on a healthy machine.
	startSlack = 50 * time.Millisecond
	// strayAge is how long a zombie that this package did not start is left to whoever did before it is
	// reaped. Such are orphans that a wrapper as PID 1, or one with a daemon of a hook of its own,
	// inherits.
	strayAge = 2 * time.Second
)

// A supervisor is the wrapper's knowledge of its guard. Only the supervisor's goroutine uses it (status is
// read after done is closed).
type supervisor struct {
	phase    phase
	closing  bool
	ordered  chan struct{} // closed at the first order
	line     *line
	lifetime int
	guard    int // pid of the guard process
	guardFD  int // the same as a descriptor; -1 if there is none
	launches int
	failure  error // why there is no guard

	ready    bool          // the guard process is up
	toSend   *message      // the order, if there is no guard process to send it to
	unread   *message      // the order as it was sent to a guard that is not up yet
	freeAt   time.Duration // when a job that is still being started is looked at; zero if none is
	terminal bool          // the signals of job control are taken
	pending  chan startAnswer
	name     string // of the command, for errors
	early    []syscall.Signal
	keyStop  time.Duration // when the stop key was pressed
	resumed  time.Duration // when SIGCONT was passed on the last time

	pid       int   // of the job's first process
	holds     []int // copies of what the guard holds: if it dies, the locks must not be free before the tree is gone
	telling   byte  // what the job is being told
	answerTo  chan<- error
	known     bool
	status    Status
	tree      *tree
	nextRound time.Duration

	deadlines Deadlines
	disarmed  bool
	stopped   bool          // the end was asked for
	killed    bool          // and SIGKILL too
	askAt     time.Duration // when the guard is to be asked next; zero for never
	unsent    *message      // the latest deadlines, if they could not be sent
	seq       uint32        // of the last message sent
	asked     uint32        // the guard must have answered this
	answerBy  time.Duration // by then; zero if nothing is asked
	stopAt    alarm
	killAt    alarm
	hungUp    bool
	isReaped  bool

	strays  map[int]time.Duration
	strayAt time.Duration
}

func (g *Guard) loop() {
	for {
		g.work()
		g.listen()
		now := Now()
		g.watch(now)
		g.clean(now)
		if g.over() {
			break
		}
		fd := -1
		switch {
		case g.line != nil:
			fd = g.line.fd
		case g.hungUp:
			fd = g.guardFD // it is about to end
		}
		g.wake.poll(g.sleep(Now()), fd)
	}
	g.retire()
}

// work does what was posted.
func (g *Guard) work() {
	g.mu.Lock()
	todo := g.posted
	g.posted = nil
	g.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// listen acts on what the guard says.
func (g *Guard) listen() {
	for g.line != nil {
		m, err := g.line.receive()
		if err == errNothing {
			return
		}
		if err != nil {
			g.lostGuard()
			return
		}
		closeAll(m.files)
		g.heard(m)
	}
}

func (g *Guard) heard(m message) {
	switch m.kind {
	case msgReady:
		g.ready, g.unread = true, nil
	case msgAck:
		if g.answerBy != 0 && int32(m.seq-g.asked) >= 0 {
			g.answerBy = 0
		}
	case msgStarted:
		g.started(int(m.n[0]))
	case msgLate:
		g.notStarted(ErrLate)
	case msgFailed:
		g.notStarted(startError(g.name, syscall.Errno(m.n[0])))
	case msgToldJob:
		g.toldJob(m)
	case msgPaused:
		g.mirrorStop(syscall.Signal(m.n[0]))
	case msgEnded:
		g.known = true
		g.setStatus(m)
	case msgNotice:
		n := Notice{Kind: NoticeKind(m.n[0])}
		n.PIDs, n.Names = unpackProcesses(m.text)
		if m.n[1] != 0 {
			n.Err = syscall.Errno(m.n[1])
		}
		g.notify(n)
	case msgDone:
		g.setStatus(m)
		g.status.Left, _ = unpackProcesses(m.text)
		g.finish()
	}
}

func (g *Guard) setStatus(m message) {
	g.status.Known, g.status.Stopped = m.n[2] != 0, m.n[1] != 0
	g.status.Code, g.status.Signal = statusOf(syscall.WaitStatus(m.n[0]))
}

// finish: nothing of the job is left, or the rest was let go.
func (g *Guard) finish() {
	if g.phase == finished {
		return
	}
	g.dropTerminal()
	g.phase = finished
	g.stopAt.set(0)
	g.killAt.set(0)
	g.answerBy, g.askAt = 0, 0
	if len(g.status.Left) > 0 && g.alone() {
		// Processes that were let go belong to init and not to us; as a subreaper we would inherit them now.
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
	g.hangUp()
	g.letGo()
	g.answerJob(ErrEnding)
	close(g.done)
}

// alone is true if this guard is the only one of the program.
func (g *Guard) alone() bool {
	guards.Lock()
	defer guards.Unlock()
	return len(guards.pids) <= 1
}

// hangUp closes the line; a guard without a job, or with one that is done, ends then.
func (g *Guard) hangUp() {
	if g.line != nil {
		unix.Close(g.line.fd)
		unix.Close(g.lifetime)
		g.line = nil
		g.hungUp = true
		g.answerBy = Now() + patience
	}
}

// over looks whether the supervisor's work is done: it is asked to end, there is no job and no guard process.
func (g *Guard) over() bool {
	if g.guard != 0 && g.hungUp {
		g.reapGuard()
	}
	if g.guard == 0 && g.phase == finished && !g.isReaped {
		g.isReaped = true
		close(g.reaped)
	}
	if !g.closing {
		return false
	}
	switch g.phase {
	case waiting:
		g.hangUp()
		return g.guard == 0
	case starting, running:
		if !g.killed {
			g.demand(msgKill)
		}
	case finished:
		return g.guard == 0
	}
	return false
}

// firstOrder lets the rest of the signals be taken.
func (g *Guard) firstOrder() {
	select {
	case <-g.ordered:
	default:
		close(g.ordered)
	}
}

// retire ends what belongs to the supervisor.
func (g *Guard) retire() {
	g.stopAt.drop()
	g.killAt.drop()
	g.firstOrder() // there will be none
	<-g.allTaken
	g.dropSignals()
	g.mu.Lock()
	g.closed = true
	todo := g.posted
	g.posted = nil
	g.mu.Unlock()
	for _, f := range todo {
		f() // they answer that it is over
	}
	close(g.ended)
	unix.Close(g.wake.fd)
}
