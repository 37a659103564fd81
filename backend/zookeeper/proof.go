package zookeeper

import (
	"time"

	"github.com/simba-lock/simba/lease"
)

// beat is a request that was answered.
type beat struct{ sent, answered lease.Instant }

// proof is what is known of the time at which the leader last heard of the
// session, by one connection. The package comment says why.
type proof struct {
	granted   time.Duration
	handshake lease.Instant // its sending
	beats     []beat        // of this connection, the oldest first
	proven    lease.Instant // the leader heard of the session then or later; 0: nothing is known
	checked   lease.Instant // sending of the last write that was confirmed
}

// age is how long before a write a request must have been answered, for the
// leader to have heard of it from the follower: half a tick is at most a quarter
// of a session. The rest is for a leader that pings a little late.
func (p *proof) age() time.Duration { return p.granted/4 + p.granted/64 }

// spacing of the requests that are kept: closer ones prove nothing worth it.
func (p *proof) spacing() time.Duration { return p.granted / 64 }

func (p *proof) answered(b beat) {
	if n := len(p.beats); n > 0 && b.sent < p.beats[n-1].sent+p.spacing() {
		return
	}
	p.beats = append(p.beats, b)
}

// confirmed takes in that a write sent then was confirmed.
func (p *proof) confirmed(sent lease.Instant) {
	p.checked = max(p.checked, sent)
	p.proven = max(p.proven, p.handshake)
	last := -1
	for i, b := range p.beats {
		if b.answered <= sent-p.age() {
			last = i
		}
	}
	if last >= 0 {
		p.proven = max(p.proven, p.beats[last].sent)
		p.beats = append(p.beats[:0], p.beats[last+1:]...)
	}
}

// due tells whether another write could prove more than the last one did.
func (p *proof) due(now lease.Instant) bool {
	return p.proven == 0 || now >= p.checked+p.granted/10
}
