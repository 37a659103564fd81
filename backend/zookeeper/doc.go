// Package zookeeper keeps mutexes in ZooKeeper, in the layout of Curator's
// LeaderLatch, so that it and JVM services exclude each other.
//
// # Layout
//
//	/simba/NAME/_c_GUID-latch-SEQ   ephemeral; a contender. Data: its id, then for
//	                                ours a line feed and the info as JSON
//	/simba-state/claim-GUID         ephemeral; the contender with that GUID owns its
//	                                mutex: fence, lease, whether it was revoked
//	/simba-state/emptied-NAME       the store was emptied under an owner
//	/simba-state/hold-NAME          nobody may own the mutex for a while, see hold
//	/simba-state/checkpoint-NAME    a text that owners keep for those to come
//
// The contender with the lowest sequence number owns the mutex; each of the
// others watches the one in front of it. Latch nodes are written once: Curator
// waits for their deletion with a data watch and is not woken a second time. For
// the same reason nothing but latch nodes is put under /simba/NAME. Nodes of
// /simba/NAME are containers, which the server removes when they are empty.
//
// A claim is written in the same transaction that checks the latch node of a
// new owner. It gives nobody the mutex; it tells the others since when there is an
// owner, and it is where an owner hears that it was revoked. It also outlives a
// latch node that somebody deletes by hand: waiters that saw the owner wait for
// its work to end, see lingering.
//
// # The lease
//
// A contender has a ZooKeeper session of its own, with L for its timeout. What
// the server grants instead is L from then on. Its latch node lives until the
// leader has heard nothing of the session for L. The question is what the
// contender knows of the last time the leader heard of it:
//
//   - A follower answers reads and pings by itself. It keeps a list of the
//     sessions that it heard of, and sends it to the leader when the leader
//     pings it, every half tick. A follower that is cut off answers until it
//     notices. So an answered ping or read proves nothing.
//   - A write goes through the leader, which finds that the session lives. But
//     what a follower passes on does not count as a sign of life.
//   - A leader that was deposed answers reads until it notices. It confirms no
//     write. Its successor gives each session a full timeout anew when it takes
//     over, which is after the last write that the old one confirmed.
//
// Now let a request be answered, and let a write on the same connection be sent
// a quarter of the granted timeout later, and confirmed. A session lasts two
// ticks at the least, so in between the leader has pinged the follower, and the
// follower has told it of the session, on the same stream as the write and
// before it. Hence the session was alive at the leader at a time not before the
// sending of that request, and lasts L from there: the sending of the request
// is the start of the lease. The same holds, without any waiting, for the
// handshake of a connection once a write on it was confirmed, since a new
// session is itself a write and an old one is confirmed by the leader, which
// counts that as a sign of life.
//
// So a renewal is a transaction that only checks that the latch node is there:
// it is a quorum write, and it fires nobody's watch. It counts from the latest
// request that is old enough. Contenders send a heartbeat every L/8, for one to
// be at hand when the mutex is handed over. The start of the lease thus lies
// L/4 to 3L/8 back, and the ttl has to be at least half of L.
//
// The servers named should vote: observers behind a follower tell the leader of
// their sessions over two hops. With minSessionTimeout below two ticks, L has to
// be at least two ticks.
//
// # Rights
//
// With a user in the URL, nodes belong to that user alone; acl=read lets everybody
// read them, and acl=open do with them what they like. JVM contenders have to be the
// same user, or need acl=open: they read the data of the node in front of theirs.
//
// # Sizing
//
// A contender that is killed with -9 or frozen keeps its place until its session
// ends. One whose process lives but does not come when it is its turn leaves
// after a second.
package zookeeper
