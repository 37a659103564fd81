package lease

// Driver does what a Machine says, for the simulation.
type Driver interface {
	Open(id string)
	Try(seq int, id string, r TryRequest)
	Renew(seq int, id string, r RenewRequest)
	Release(seq int, id string, r ReleaseRequest)
	Listen(seq int)
	Start(id string, a Answer, d Deadlines)
	Extend(d Deadlines)
	Stop(cause error)
	Emit(e Event)
	End(err error)
}

// Machine is the protocol machine with a face that other packages see.
type Machine struct {
	m *machine
	h Driver
}

func NewMachine(cfg Config, newID func() string, random func() float64, h Driver) *Machine {
	return &Machine{m: newMachine(cfg, newID, random), h: h}
}

func (x *Machine) Start(now Instant) { x.perform(x.m.start(now)) }
func (x *Machine) Timer(now Instant) { x.step(now, input{kind: inTimer}) }
func (x *Machine) Answered(now Instant, seq int, a Answer, err error) {
	x.step(now, input{kind: inAnswered, seq: seq, answer: a, err: err})
}
func (x *Machine) Ready(now Instant, bell int) { x.step(now, input{kind: inReady, seq: bell}) }
func (x *Machine) Rang(now Instant, bell int)  { x.step(now, input{kind: inRang, seq: bell}) }
func (x *Machine) Deaf(now Instant, bell int, err error) {
	x.step(now, input{kind: inDeaf, seq: bell, err: err})
}
func (x *Machine) WorkEnded(now Instant, err error) { x.step(now, input{kind: inWorkEnded, err: err}) }
func (x *Machine) GiveUp(now Instant, err error)    { x.step(now, input{kind: inGiveUp, err: err}) }
func (x *Machine) Wake() Instant                    { return x.m.planned }
func (x *Machine) KillShare() Instant               { return x.m.asked.kappa() }

func (x *Machine) step(now Instant, in input) { x.perform(x.m.step(now, in)) }

func (x *Machine) perform(todo []action) {
	for _, a := range todo {
		switch a.kind {
		case actOpen:
			x.h.Open(a.id)
		case actCall:
			switch a.op {
			case opTry:
				x.h.Try(a.seq, a.id, a.try)
			case opRenew:
				x.h.Renew(a.seq, a.id, a.renew)
			case opRelease:
				x.h.Release(a.seq, a.id, a.release)
			}
		case actAbandon: // its answer, if one comes, is not looked at
		case actListen:
			x.h.Listen(a.seq)
		case actStart:
			x.h.Start(a.id, a.answer, a.deadlines)
		case actExtend:
			x.h.Extend(a.deadlines)
		case actStop:
			x.h.Stop(a.err)
		case actEmit:
			x.h.Emit(a.event)
		case actEnd:
			x.h.End(a.err)
		}
	}
}
