// Package file keeps mutexes in a local directory. Who owns one is decided by
// kernel locks on open files, which simba and its guard share: ownership has no
// end, is free the instant both processes are gone, and never before.
//
// # Layout
//
// Each mutex has a directory in the store, named by the escaped mutex:
//
//	NAME/lock     the lock file; never removed
//	NAME/record   who owns it or did last, for people and for the fence
//	NAME/revoke   the id of an owner that was told to stop; usually absent
//	NAME/queue/   one ticket a waiter; absent if nobody waits
//
// # Why two contenders never own one mutex
//
// An owner holds two kernel locks of open file descriptions (OFD locks):
//
//   - a write lock on NAME/lock. While it is held nobody else gets it, so as
//     long as the path leads to the same inode there is one owner. After taking
//     it, a contender checks that the path still does, and else begins again.
//   - a read lock on one byte of the store's directory itself, the byte being
//     made from the mutex's name: the claim. Many could hold it, so a contender
//     first sets its own and then looks for another's; if it sees one it backs
//     off. Of two contenders, the one that sets its claim later sees the
//     earlier one's. So a lock file that is removed, moved away or replaced
//     leaves room for a second lock, but not for a second owner.
//
// What is left is a whole directory that is removed or replaced. Then the claim
// is in the old one. A contender distrusts a lock file if the record does not
// name its inode, or names an owner that never released it; it then looks for a
// live guard of this directory and mutex (Options.LiveGuards) and waits for it.
// The owner notices as well, at once by its doorbell and at the latest at the
// next renewal, and puts everything back: it sets its claim in the new
// directory first, and only answers Mine if nobody else has one there. From
// then on it holds the locks in both. An owner that finds somebody else's claim
// gives up.
//
// No lock is ever taken back by F_UNLCK, which would take it from the guard
// too: files are only closed. The record decides nothing but a cooldown (see
// lease.TryRequest.Hold), and that only if its checksum is right. Garbage in it, a
// time in the far future, or the pid of somebody else can neither free a mutex whose
// lock is held nor keep one whose lock is free.
//
// # The queue
//
// Order is a matter of fairness, not of safety; nothing in the queue can make
// two owners. A waiter has a ticket, a file whose name sorts by arrival and on
// which it holds a lock: a ticket without a lock is dead, and whoever sees it
// removes it. Its sequence number is one more than the highest that is there,
// and it appears by rename, already locked. So joining, leaving and clearing
// away are single atomic steps: there is no section in which a frozen process
// could block the others, and no lock to wait for.
//
// Only the first live ticket may take a free mutex; a contender without a
// ticket may if there is none. A first one that is frozen is given
// lease.PromiseLife from the moment at which somebody else sees the mutex free
// and that ticket in front; then its ticket is removed, and it finds so when it
// thaws. That clock runs in each onlooker by itself: nothing has to be written,
// and no clock of another host or of another boot counts.
//
// Waiters are woken by the kernel through inotify: the closing of the lock
// file's last descriptor, by exit or kill -9 too, wakes the first few; the end
// of a ticket wakes the one behind it.
//
// # What is weaker
//
// On macOS and the BSDs flock(2) stands in for OFD locks, there is no claim on
// the directory, and waiters look every 25 ms. On network file systems locks
// may be local to a host or be lost with the connection; see Backend.Warnings.
package file
