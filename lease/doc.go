// Package lease is the protocol by which contenders share a mutex: a lease of
// ttl that everybody respects, plus a transition in which only the owner may
// still renew. It is the only place that knows the protocol; a [Backend] only
// knows how to do each step atomically in one store.
//
// # What is promised
//
// The work given to [Do] is told to stop, by the end of its context, before
// anybody else can own the mutex, provided that
//
//   - the backend keeps what it acknowledged, and its members' clocks neither
//     step nor disagree by more than the allowance named at [Terms];
//   - clock rates differ by less than 1 %;
//   - the work really ends when it is told to. For processes, package
//     internal/guard sees to that; a Go function has to do it itself.
//
// # What is not promised
//
//   - A store that forgets (a Redis that fails over to a replica which lags, a
//     table restored from a backup) may name two owners. The fencing token then
//     differs: whoever writes to something shared should check it there.
//   - A machine that is suspended or frozen as a whole cannot watch its own
//     deadline. Work that thaws may live for some tens of milliseconds.
//   - A contender that comes first to a store that was emptied cannot know that
//     there was an owner. Waiters can, and keep everybody out for one lease.
//
// # Sizing
//
// A lease lasts L = ttl + transition. The owner renews from ttl/3 on, so ttl is
// three times the longest hiccup that should go unnoticed, and transition is
// the additional outage that the work survives. L is also the longest time for
// which nobody gets on after an owner was cut off. L should be at least a
// hundred times the round trip to the backend.
package lease
