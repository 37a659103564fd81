// Package redis keeps mutexes in a Redis, in the layout of the JVM library, so
// that both kinds of contenders exclude each other.
//
// # Layout
//
// All of a mutex has one hash tag, its name in literal braces, and so lives in
// one slot of a cluster.
//
//   - simba:{NAME} is a string, the owner's id; its PX is the rest of the lease, or
//     of a hold that ends later.
//   - simba:{NAME}:contender is a sorted set of waiters; the score is the
//     server's time of their arrival in seconds, ours with a fraction.
//   - Channel simba:{NAME} carries only acquired@@id, channel simba:{NAME}:ID
//     (ID the waiter's) only released@@id, and that only when the string is
//     already gone. JVM contenders take both for the truth.
//   - simba:{NAME}:lease is a hash of what only this package knows, and a channel
//     for its own events (kind@@id). Its fields stand in lua/common.lua. It
//     outlives the lease by an hour, to the millisecond, and says itself when it
//     will go: so whoever may not use TIME still knows the server's present.
//   - simba:{NAME}:checkpoint is a string, the text of a checkpoint.
//
// Each writing operation is one script, lua/common.lua and ownership.lua followed
// by one of the others; the server runs it in one atomic step. Reading takes plain
// commands of the category @read.
//
// # Why there are never two owners
//
// The string is set when a mutex is taken, when its recorded owner finds the
// string deleted, and when an owner puts a vanished record back; always with NX
// (but see below of holds), and after these were read in the same step: no string;
// no record in the hash of another owner that neither gave back nor ran out; no
// embargo for the sake of another; for a re-assertion also no higher fence. It is
// deleted only by a release that names the whole id, or by its own end, which is
// the hash's. Whoever is told "mine" counts from before it asked, so it believes
// in the lease for less long than the server does.
//
// A request that runs late, from the buffers of a network or of a frozen server,
// finds that its id is spent: the last owner's record says that it gave back, or
// a tombstone says that it left. So at most it makes the lease of an owner that
// is still at work longer.
//
// # Holds
//
// Until its hold ends, nobody but an owner may own the mutex. While it does, the
// string's end is the later one of lease and hold, set by every renewal; what the
// owner is told is left is its lease alone. After that the string stays as it is:
// a JVM contender compares it with its own id only, and that is another. So it is
// kept out, and a released@@, which says that the string is gone, is sent to
// nobody. For ours it is the hash that says that the string is no owner (cooling
// in common.lua): the record is the string's, gave back or ran out, and has a
// hold. What may fail:
//
//   - The answer to an acquisition is lost, or comes too late to begin anything: asked
//     again it is the same hold. If the contender gives up instead, its release ends
//     the hold, for nothing ran.
//   - A renewal names what the owner believes is left. That is used only if there is
//     no hold on record, so no hold is made shorter, or longer.
//   - The owner dies, or is revoked, before the hold has ended: nothing has to be done.
//   - It ran out, comes back and re-asserts: the string there is its own, or what
//     an older record left, which the higher fence outdoes (the one place without NX).
//   - The string was deleted: the hash keeps ours out, and the next renewal, release or
//     look of one of ours puts it back. The hash was deleted: the owner's next
//     renewal, or its release, writes down what it remembers; after its time the string
//     counts as that of an owner without a record.
//   - Both are gone: a store that forgets, see below. The owner's re-assertion
//     brings the hold along.
//
// # What can break it
//
// A store that forgets. An empty one is recognised by its birth stamp, or by a
// fence below one that was seen: then a waiter writes an embargo for one lease of
// the owner it saw, and that owner puts its record back or gives up. But a
// newcomer that comes before any waiter or the owner cannot know; nor can a JVM
// contender, which leaves no trace of an ownership that has ended either. A
// failover to a replica that lags is such a loss; wait_replicas=N in the URL lets
// acquisitions and renewals count only once N replicas have them. The fencing
// token rises through all of that: it is at least the server's time in
// microseconds.
//
// # Queue
//
// The order is that of the scores, of set and hash together: JVM contenders take
// the lowest member out of the set without looking whether it lives. A free mutex
// goes to the first live waiter. Any other look, and a release, wakes that one and
// promises it the mutex:
//
//   - One whose subscription the server has (push) gets a second, or a quarter if
//     it should have looked by itself long ago.
//   - One without (poll) gets until a second after its next look. (Answers tell
//     of no more than a second at a time.)
//   - One that should have a subscription and has none is doubted for a quarter of
//     a second, all such together, and dropped then; at once if it is overdue. So
//     killed connections cost nobody its place, and a crowd of dead ones costs
//     what one does.
//   - A JVM contender is taken out of the set, as its own kind does, and gets a
//     second if anybody listens on its channel.
//
// A promise that lapses drops its waiter. One that lives knows its score and
// claims its place again, also in a store that was emptied, unless it was frozen.
// Whoever is overdue by half a minute is forgotten. An owner of either kind ends a
// promise: JVM contenders know of none.
//
// # What is refused
//
// A full server (noeviction) refuses a script's first write if that needs memory,
// and accepts all after one that it accepted. So taking begins with SET and is
// refused as a whole; renewing begins with PEXPIREAT, releasing with DEL, ZREM or
// PEXPIREAT, and both are carried out. A checkpoint is a single SET. Who may not use
// channels is not woken and does not wake, but is served: refused messages are passed
// over. If a later command of an acquisition is refused for want of rights, what
// came before it is undone.
package redis
