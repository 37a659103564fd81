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
		k.asking.Add(1)
		go func() {
			defer k.asking.Done()
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
		}()
	}
}

func (k *keeper) reply(r request) answer {
	k.mu.Lock()
	if k.holder == nil || k.holder.ID() != r.Owner {
		k.mu.Unlock()
		return answer{Why: "it is another lease"}
	}
	if r.Op == askRenew && k.state().Held {
		k.extend(r.TTL, r.Rest)
		k.nudge()
	}
	a := k.state()
	if r.Op == askRelease {
		k.released = true
	}
	k.mu.Unlock()
	if r.Op == askRelease {
		k.nudge()
		<-k.over
	}
	return a
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
	case <-k.over:
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
