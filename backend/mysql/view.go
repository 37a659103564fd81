package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

// view is what one reading tells of a mutex. Times are ms since 1970 by the
// server's clock, which said nowUS.
type view struct {
	nowUS uint64
	now   uint64

	hasMutex, hasLease            bool
	acquiredAt, ttlAt, transition uint64
	holder                        string // simba_mutex.owner_id
	version                       uint64

	birth, last, info            string
	rev, fence                   uint64
	acquired, endAt, leaseMS     uint64 // the end of the lease, also during a hold
	holdUntil                    uint64
	released, revoked            bool
	promised                     string
	promiseUntil, promiseVersion uint64
	embargoed                    string
	embargoFence, embargoUntil   uint64
	embargoMS                    uint64
	head                         string // the first line of the queue
	rank                         int
	spent                        bool
	queue                        string // lines, as asked for

	owner string // whoever owns it now; empty: nobody
	ours  bool   // it is one of ours, of which simba_lease tells
}

// farAway is an end that nobody waits for: a value of another program's.
const farAway = 100 * 365 * 24 * time.Hour

// look reads the state of a mutex as contender me; queue is "all", "front" or empty.
func look(ctx context.Context, l *line, mutex, me, queue string) (*view, error) {
	var v view
	var name, beside string
	var m struct {
		acquired, ttl, transition, version sql.Null[uint64]
		owner                              sql.NullString
	}
	var r struct {
		birth, owner, info, promise, embargo, head, queue        sql.NullString
		rev, fence, acquired, end, lease, hold                   sql.Null[uint64]
		until, version                                           sql.Null[uint64]
		embargoFence, embargoUntil, embargoMS, released, revoked sql.Null[uint64]
		whole, spent                                             sql.NullBool
		rank                                                     sql.Null[int]
	}
	err := l.one(ctx, lookSQL().text, lookSQL().values(args{"mutex": mutex, "me": me, "queue": queue}),
		&v.nowUS,
		&v.hasMutex, &name, &m.acquired, &m.ttl, &m.transition, &m.owner, &m.version,
		&v.hasLease, &beside, &r.birth, &r.rev, &r.fence, &r.owner, &r.info, &r.acquired, &r.end, &r.lease, &r.hold,
		&r.released, &r.revoked, &r.promise, &r.until, &r.version,
		&r.embargo, &r.embargoFence, &r.embargoUntil, &r.embargoMS,
		&r.whole, &r.head, &r.rank, &r.spent, &r.queue)
	if err != nil {
		return nil, unreadable(mutex, err)
	}
	v.now = v.nowUS / 1000
	if v.hasMutex {
		switch {
		case name != mutex:
			return nil, folded("simba_mutex", mutex, name)
		case !m.acquired.Valid || !m.ttl.Valid || !m.transition.Valid || !m.owner.Valid || !m.version.Valid:
			return nil, lease.Permanent(fmt.Errorf("the row %q of simba_mutex holds a NULL: it is not the protocol's", mutex))
		}
		v.acquiredAt, v.ttlAt, v.transition = m.acquired.V, m.ttl.V, m.transition.V
		v.holder, v.version = m.owner.String, m.version.V
	}
	if v.hasLease {
		if beside != mutex {
			return nil, folded("simba_lease", mutex, beside)
		}
		if r.fence.V >= 1<<53 || !r.whole.Bool {
			return nil, lease.Permanent(fmt.Errorf("the row %q of simba_lease is not what was written: a fence of %d, or a cut queue", mutex, r.fence.V))
		}
		v.birth, v.last, v.info, v.rev, v.fence = r.birth.String, r.owner.String, r.info.String, r.rev.V, r.fence.V
		v.acquired, v.endAt, v.leaseMS, v.holdUntil = r.acquired.V, r.end.V, r.lease.V, r.hold.V
		v.released, v.revoked = r.released.V != 0, r.revoked.V != 0
		v.promised, v.promiseUntil, v.promiseVersion = r.promise.String, r.until.V, r.version.V
		v.embargoed, v.embargoFence, v.embargoUntil, v.embargoMS = r.embargo.String, r.embargoFence.V, r.embargoUntil.V, r.embargoMS.V
		v.head, v.rank, v.spent, v.queue = r.head.String, r.rank.V, r.spent.Bool, r.queue.String
	}
	v.judge()
	return &v, nil
}

// folded: the row of another mutex, whose name is the same to the table's collation.
func folded(table, mutex, there string) error {
	return lease.Permanent(fmt.Errorf("the collation of %s takes %q and %q, which is there, for one name", table, mutex, there))
}

// unreadable: a value that does not fit its place is somebody else's. What
// broke on the way is not.
func unreadable(mutex string, err error) error {
	if number(err) != 0 || !strings.Contains(err.Error(), "Scan error") {
		return err
	}
	_, column, _ := strings.Cut(err.Error(), `name "`)
	column, _, _ = strings.Cut(column, `"`)
	return lease.Permanent(fmt.Errorf("the row %q holds in %s what does not belong there: it is not the protocol's", mutex, column))
}

// judge finds out who owns the mutex: whom simba_mutex names, or, if that row
// was lost or emptied, the owner whose own lease has neither ended nor been
// released. What simba_mutex says of one of ours may outlast its lease, by its
// hold; then it has no owner.
func (v *view) judge() {
	named := v.hasMutex && v.holder != "" && v.transition >= v.now
	switch {
	case named && v.holder == v.last && v.endAt < v.now: // nobody does
	case named:
		v.owner, v.ours = v.holder, v.holder == v.last && !v.released
	case v.last != "" && !v.released && v.endAt >= v.now:
		v.owner, v.ours = v.last, true
	}
}

// lost: the owner's record in simba_mutex is gone.
func (v *view) lost() bool { return v.owner != "" && v.holder != v.owner }

// kept: nobody may own it, for the sake of a former owner.
func (v *view) kept() bool {
	return v.owner == "" && v.embargoed != "" && v.embargoUntil >= v.now
}

// cooling: nobody owns it, and nobody may yet. Either table is enough, since the
// row in the other one may have been deleted.
func (v *view) cooling() bool {
	return v.owner == "" && !v.kept() && v.coolEnd() >= v.now
}

func (v *view) coolEnd() uint64 { return max(v.transition, v.holdUntil) }

// untold: a hold goes on of which simba_mutex, and so a JVM, knows nothing.
func (v *view) untold() bool {
	return v.cooling() && v.holdUntil >= v.now && v.transition < v.holdUntil
}

// promise is the waiter that the free mutex is promised to; it may be late.
func (v *view) promise() (id string, late bool) {
	if v.promised == "" || v.promiseVersion != v.version {
		return "", false
	}
	return v.promised, v.promiseUntil <= v.now
}

// first is the first waiter, and whether it looks by itself.
func (v *view) first() (id string, polls bool) {
	id, rest, _ := strings.Cut(v.head, "\t")
	return id, strings.HasPrefix(rest, "p\t")
}

// imposes: the asker saw an owner of which nothing is known here.
func (v *view) imposes(seen lease.Seen) bool {
	if seen.Owner == "" || v.owner != "" || seen.Owner == v.last || seen.Owner == v.embargoed {
		return false
	}
	if v.birth == seen.Birth && v.fence >= seen.Fence {
		return false
	}
	return !v.kept() || v.embargoFence < seen.Fence
}

func (v *view) until(end uint64) time.Duration {
	if end < v.now {
		return 0
	}
	if end-v.now > uint64(farAway/time.Millisecond) {
		return lease.Forever
	}
	// It can be taken when the clock shows the next millisecond.
	return time.Duration((end+1)*1000-v.nowUS) * time.Microsecond
}

func millis(ms uint64) time.Duration {
	if ms > uint64(farAway/time.Millisecond) {
		return lease.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// end of the present ownership: of the lease, since nobody is an owner by a hold.
func (v *view) end() uint64 {
	switch {
	case v.lost():
		return v.endAt
	case v.ours:
		return min(v.transition, v.endAt)
	}
	return v.transition
}

// lease is the owner's L.
func (v *view) lease() time.Duration {
	switch {
	case v.ours:
		return millis(v.leaseMS)
	case v.transition > v.acquiredAt && v.acquiredAt > 0:
		return millis(v.transition - v.acquiredAt)
	}
	return 0
}

func decoded(info string) lease.Info {
	var i lease.Info
	if json.Unmarshal([]byte(info), &i) != nil {
		return lease.Info{} // nothing is decided by it
	}
	return i
}

// answer is what the view says to contender me.
func (v *view) answer(me string) lease.Answer {
	a := lease.Answer{Birth: v.birth, Clock: time.Duration(v.nowUS) * time.Microsecond, Rank: v.rank}
	promise, late := v.promise()
	switch {
	case v.owner != "":
		a.State, a.Owner, a.Remaining, a.Lease = lease.Held, v.owner, v.until(v.end()), v.lease()
		if v.ours {
			a.Info, a.Fence = decoded(v.info), v.fence
		}
		if v.owner == me && v.ours {
			a.State, a.Revoked, a.Rank = lease.Mine, v.revoked, 0
		}
	case v.kept():
		a.State, a.Owner, a.Fence = lease.Held, v.embargoed, v.embargoFence
		a.Remaining, a.Lease = v.until(v.embargoUntil), millis(v.embargoMS)
	case v.cooling():
		a.State, a.Remaining = lease.Cooldown, v.until(v.coolEnd())
	case promise != "" && !late:
		// One that polls has longer, but may come at any time.
		a.State, a.Remaining = lease.Promised, min(millis(v.promiseUntil-v.now), lease.PromiseLife)
	}
	return a
}
