// Package mysql keeps mutexes in a database of MySQL 8 or MariaDB 10.6 and
// later, in the table of the JVM library, so that both kinds of contenders
// exclude each other.
//
// # Two tables
//
// simba_mutex is the JVM library's: who owns a mutex, and until when. It is used
// as it is found. simba_lease stands beside it, a row a mutex, with what the
// library has no column for: the fence, the queue, promises, an embargo after a
// loss, ids that are spent. Both are read and written together: the rows of a
// mutex are made by inserts of their own, and each step of the protocol is one
// autocommitted UPDATE over the two, which says itself under which conditions
// it holds. So no row stays locked between two round trips, however slow or
// frozen the one that asked. What a step was decided on may be out of date by
// the time it arrives; then it finds no row and the contender looks again.
//
// An owner is whom simba_mutex names while its lease lasts. If that row was
// emptied or deleted, simba_lease still holds the owner until the lease that it
// was given has ended: no other contender of this kind gets in (a JVM does not
// know of it), and the owner puts the row back at its next renewal.
//
// Times are milliseconds of UTC by the clock of the server when a statement
// began. No time zone is asked for anything. The JVM library computes its own
// from the session's local time; a JVM whose session is not in UTC is wrong for
// an hour when the clocks go back, and nothing here can mend that.
//
// # A hold
//
// An owner may want the mutex kept for so long after the acquisition, also when it has
// gone before ([lease.TryRequest.Hold]). hold_until is written by the acquisition and
// by no other step but a re-assertion, which never makes it earlier, and no
// acquisition and no promise goes through before. A JVM reads transition_at alone, so
// that is the later of the two ends for as long as somebody is named, and the end of
// the hold when nobody is, any more. Hence
//
//   - nobody owns it before the end, whether the owner releases it, dies, or is
//     revoked: none of that touches hold_until, and each statement that sets
//     transition_at takes the later one;
//   - an owner has the mutex until end_at only, which is the end of its lease: it is
//     not told of more, a renewal after it finds no row, and it cannot be revoked;
//   - a reply that was lost changes nothing: who asks again owns it already, and that
//     extends the lease, not the hold;
//   - if one row is deleted by hand the other one is enough for ours, and whoever of
//     them looks first, or the owner, writes into a new one what JVMs go by. A JVM that
//     comes before that is not kept out. If both are deleted the owner knows at its
//     next renewal what is left; when it has gone, that ends the hold;
//   - an embargo and a hold run side by side, and the later end counts.
//
// # Checkpoints
//
// The text that an owner leaves to those after it is set by a statement that finds its
// row only while the owner owns the mutex and the text is what it knew. So it does no
// harm late, and again it does nothing: what is there then is read and told. No row
// stays locked, since the statement is a transaction by itself.
//
// # Who is next
//
// The queue is the column waiters: who came first stands first. An acquisition
// goes through only
//
//   - if the mutex is promised to the asker, or
//   - if it is promised to nobody and the asker stands first, or nobody waits.
//
// That is part of the statement, so it holds in the instant of taking. A
// release promises the mutex to the first waiter in the same statement that
// frees it; where a JVM released, which knows of no waiters, whoever looks next
// makes the promise. A newcomer finds either the promise or the queue, and in
// both cases not its own name. A promise that was not taken up in time costs
// its waiter its place, by a statement that holds only while the promise is the
// same and nobody owned the mutex since (a JVM that did shows in version). If all
// in front of a waiter were silent for as long as a promise lasts, those that are
// first get none any more.
//
// # Who is woken
//
// Waking is the work of the server's named locks, which it gives up by itself
// when a connection ends. Each contender that listens holds a lock named after
// itself, and waits, in GET_LOCK, for the lock of the nearest living contender
// in front of it, the owner last. So a release wakes exactly the next one, in
// the order of the column; there is no second queue that could disagree with
// it. A connection that breaks costs nobody its place: whoever was waiting for
// it is woken, sees that nothing has changed, and waits for the next nearest,
// or for the same one when that is back. The statement that waits gives the
// lock back before it ends, so no contender ever keeps a lock of another's, and
// a frozen one holds up nobody but by its own lock: for that its session has a
// wait_timeout of one second, and a live one pings. The lock decides nothing.
// Were it lost, or given to two, somebody would look too late or in vain.
//
// One connection does all this. While it waits, a look that is due goes over a
// passing one, of a single statement; whoever is far from its turn does without
// most of them. A server that has no connection to spare
// has been reached all the same: a waiter is told to look again soon, and if it
// finds none for its doorbell it goes on looking by itself, without keeping one.
//
// Where there is no GET_LOCK (some proxies and clusters refuse it, and
// doorbell=off in the URL says that it must not be relied on) everybody looks
// by itself each second, the first waiter three times, and a promise lasts
// until the next look of the one that has it. Order is kept there too.
//
// # What is not covered
//
// A server that forgets what it acknowledged: replication that is not
// synchronous, with a failover. Members of a multi-primary cluster that are
// written to at the same time. Use one writer.
package mysql
