package lease

import (
	"errors"
	"time"
)

// machine is the protocol without goroutines, clocks or calls: it is told what
// happened and when, and answers what to do. So a simulation can drive it
// through any order of events, and a seed repeats it.
//
// Who notices a failure, after how long, and who may start then:
//
//   - A request or its reply is lost: the attempt ends at its own deadline and
//     is made again. t0 is the reading before the sending of the last answered
//     one, so the lease is never believed longer than the backend grants it.
//   - The backend is away, or the network is cut: nobody has to notice. The
//     deadlines of the last confirmed lease stand, here and in the guard; the
//     work is dead before the backend lets anybody else in.
//   - This process is frozen: the guard acts by the deadlines it was told. When
//     it thaws, step looks at the clock before it looks at any answer.
//   - The record is taken away or given to somebody else: the next renewal, at
//     most ttl/3 after the last one, or the doorbell tells it; the work is
//     stopped then.
//
// One attempt is under way at a time. What is answered to an attempt that was
// given up is not looked at.
type machine struct {
	mutex   string
	asked   Terms
	wait    time.Duration
	hold    time.Duration
	connect time.Duration
	newID   func() string
	random  func() float64 // [0,1): jitter

	phase  phase
	id     string
	terms  Terms // as granted
	flight *flight
	seq    int
	nextAt Instant // when the next attempt is due; 0: none
	again  bool    // the bell rang while an attempt was under way
	fails  int     // attempts in a row that failed
	lastEr error
	// unanswered: some call of this id got no answer, so it may still run.
	unanswered bool
	sentAny    bool // a call of this id left, so there may be something to leave

	bell     bellState
	bellSeq  int // of the present one; what an earlier one says is not heard
	listenAt Instant

	// contending
	began     Instant
	connectBy Instant
	contact   bool
	lates     int // acquisitions in a row that came too late to start
	last      Answer
	lastAt    Instant
	told      string // what the last waiting event told
	seen      Seen
	planned   Instant // the wake-up that the last step asked for
	startOver bool

	// holding
	endless   bool
	t0        Instant
	deadline  Deadlines
	lastRenew Instant
	holdEnd   Instant // until then others are to stay out; 0: no such wish
	fence     uint64
	state     string
	stopCause error // why the work was told to stop
	lost      bool  // the mutex is not ours any more
	worked    bool  // something may have run under this id
	reassert  bool
	clockLo   time.Duration // backend clock minus ours: between lo and hi
	clockHi   time.Duration
	clocked   bool

	// leaving
	leaveBy Instant
	anew    bool // contend again afterwards, with a new id
	result  error

	out []action
}

type phase int

const (
	contending phase = iota
	holding
	leaving
	ended
)

type bellState int

const (
	bellOff bellState = iota
	bellAsked
	bellReady
	bellNone // no push here
)

type op int

const (
	opTry op = iota
	opRenew
	opRelease
)

func (o op) String() string { return [...]string{"try", "renew", "release"}[o] }

// flight is the attempt under way.
type flight struct {
	seq      int
	op       op
	sent     Instant
	deadline Instant
	reassert bool
	dying    bool
}

// input is something that happened.
type input struct {
	kind   inputKind
	seq    int // of the call that was answered, or of the doorbell
	answer Answer
	err    error // answered, deaf, workEnded, giveUp: the cause
}

type inputKind int

const (
	inTimer inputKind = iota
	inAnswered
	inReady     // the doorbell works now
	inRang      // look again
	inDeaf      // the doorbell ended
	inWorkEnded // Work returned
	inGiveUp    // the caller's context ended
)

// action is something to do, in order.
type action struct {
	kind      actionKind
	seq       int
	op        op
	id        string
	try       TryRequest
	renew     RenewRequest
	release   ReleaseRequest
	answer    Answer
	deadlines Deadlines
	event     Event
	err       error
}

type actionKind int

const (
	actOpen    actionKind = iota // a session for a new id
	actCall                      // make the call op
	actAbandon                   // end the context of call seq
	actListen                    // start the doorbell
	actStart                     // start the work under answer and deadlines
	actExtend                    // tell the work its new deadlines
	actStop                      // end the work's context with err
	actEmit                      // tell event
	actEnd                       // all is over; Do returns err
)

var errNoAnswer = errors.New("no answer in time")

const (
	// A waiter that is not woken looks again after its rank in seconds, but at
	// least this often.
	maxLook = 20 * time.Second
	// However short the wait, the first look is given the time that an answer
	// takes: "busy" must not be told as "not reachable".
	firstLook = time.Second
	// unpushed waiters look this often.
	pollLook = time.Second
	// The first two in the queue look again within this of the end of a lease.
	endJitter = 50 * time.Millisecond
	// A run that does not wait still waits out a promise, for so long.
	promiseWait = 2 * time.Second
	// Leaving a queue or giving up must not keep a signalled simba for longer.
	leaveWithin = time.Second
	// One try is due even to a store that never answered.
	leaveUnseen = 500 * time.Millisecond
	// Releasing is worth more: others wait a whole lease if it fails.
	releaseWithin = 5 * time.Second
	// The doorbell of an owner (revocation) is not worth a connection for work
	// that is over in a moment.
	listenAfter = time.Second
)

func newMachine(cfg Config, newID func() string, random func() float64) *machine {
	connect := cfg.ConnectTimeout
	if connect <= 0 {
		connect = DefaultConnectTimeout
	}
	return &machine{
		mutex: cfg.Mutex, asked: cfg.Terms, wait: cfg.Wait, hold: cfg.Hold, connect: connect,
		newID: newID, random: random,
	}
}
