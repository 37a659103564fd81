package cmd

import (
	"encoding/json"
	"net"
	"os"
	"time"

	"github.com/simba-lock/simba/lease"
)

// serve answers what is asked about the lease, by its user or by root.
func (k *keeper) serve() {
	for {
		c, err := k.socket.Accept()
		if err != nil {
			return
		}
		k.asking.Go(func() {
			defer func() { _ = c.Close() }()
			if uid, err := peerUID(c.(*net.UnixConn)); err != nil || uid != os.Geteuid() && uid != 0 {
				return
			}
			_ = c.SetDeadline(time.Now().Add(answersWithin))
			var r request
			if json.NewDecoder(c).Decode(&r) == nil {
				a := k.reply(r)
				_ = c.SetWriteDeadline(time.Now().Add(answersWithin))
				_ = json.NewEncoder(c).Encode(a)
			}
		})
	}
}

func (k *keeper) reply(r request) answer {
	k.mu.Lock()
	if k.holder == nil || k.holder.ID() != r.Owner {
		k.mu.Unlock()
		return answer{Why: "it is another lease"}
	}
	a := k.state()
	if r.Op == askRenew {
		k.mu.Unlock()
		if a.Held {
			a = k.renew(r)
		}
		return a
	}
	if r.Op == askRelease {
		k.released = true
	}
	k.mu.Unlock()
	if r.Op == askRelease {
		k.nudge()
		<-k.over.Done()
	}
	return a
}

// renew begins the lease anew if the store still has it as ours. A revocation may stand
// there that has not been heard of here yet.
func (k *keeper) renew(r request) answer {
	before := k.holder.Deadlines()
	s, err := inspect(k.over, k.backend, k.order.Mutex, attempt)
	k.mu.Lock()
	a := k.state()
	switch why := (&token{Owner: r.Owner}).notHeld(&s); {
	case !a.Held:
	case err != nil:
		a.Unknown = err.Error()
	case why != "":
		a.Held, a.Why = false, why
	default:
		k.extend(r.TTL, r.Rest)
		k.nudge()
		a = k.state()
	}
	k.mu.Unlock()
	if a.Held && a.Unknown == "" && before.End != 0 {
		a = k.confirmed(r.Within, before)
	}
	return a
}

// confirmed waits until the store has confirmed a renewal of its lease that was begun after
// a request. One renewal is made at a time, so that is the second of those that end after
// it. Only deadlines that come later count: an answer may repeat what was proved before.
func (k *keeper) confirmed(within time.Duration, last lease.Deadlines) answer {
	late, free := k.clock.At(k.clock.Now() + confirmedWithin(within, last.End-k.clock.Now()))
	defer free()
	for renewals := 0; ; {
		k.mu.Lock()
		changed, d, a := k.changed, k.holder.Deadlines(), k.state()
		k.mu.Unlock()
		if d.End > last.End {
			last = d
			renewals++
		}
		if !a.Held || renewals == 2 {
			return a
		}
		select {
		case <-changed:
			continue
		case <-late:
			a.Unknown = "the backend has not confirmed it in time"
		case <-k.over.Done():
			a.Unknown = "it is being released"
		}
		return a
	}
}

// confirmedWithin is how long the store may take to confirm a renewal. ZooKeeper's lease is
// proved anew about every tenth of it.
func confirmedWithin(within, whole time.Duration) time.Duration {
	const most = 10 * time.Minute
	return within + min(max(whole, 0), most)/4
}

// state is what can be said of the lease at this moment; the caller locks.
func (k *keeper) state() answer {
	a := answer{Owner: k.holder.ID(), Why: k.why, TTL: lease.Forever, Lease: lease.Forever}
	now, d := k.clock.Now(), k.holder.Deadlines()
	if k.until != 0 {
		a.TTL, a.Lease = k.until-now, k.end-now
	}
	if d.Held != 0 {
		a.TTL, a.Lease = min(a.TTL, d.Held-now), min(a.Lease, d.End-now)
	}
	select {
	case <-k.over.Done():
		a.Why = "it was released"
	default:
	}
	switch {
	case a.Why != "":
	case k.released:
		a.Why = "it is being released"
	case k.until != 0 && now >= k.until:
		a.Why = "its ttl ran out without a renewal"
	case a.TTL <= 0:
		a.Why = "the backend could not be reached in time to renew it"
	}
	a.Held = a.Why == ""
	return a
}
