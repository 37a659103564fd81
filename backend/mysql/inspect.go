package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

// Inspect is [lease.Backend.Inspect].
func (b *Backend) Inspect(ctx context.Context, mutex string) (lease.Snapshot, error) {
	s := lease.Snapshot{Mutex: mutex}
	err := b.reading(ctx, func(l *line) error {
		v, err := look(ctx, l, mutex, "", "all")
		if number(err) == noSuchTable {
			return b.jvmOnly(ctx, l, mutex, &s)
		}
		if err == nil {
			s = v.snapshot(mutex)
		}
		return err
	})
	return s, err
}

// jvmOnly reads a database in which only JVMs have contended so far. Without
// any table, nobody has.
func (b *Backend) jvmOnly(ctx context.Context, l *line, mutex string, s *lease.Snapshot) error {
	v := view{hasMutex: true}
	var name string
	err := l.one(ctx, jvmLookSQL().text, jvmLookSQL().values(args{"mutex": mutex}),
		&v.nowUS, &name, &v.acquiredAt, &v.ttlAt, &v.transition, &v.holder)
	switch {
	case number(err) == noSuchTable:
		return nil
	case err != nil:
		return unreadable(mutex, err)
	case name == mutex:
		v.now = v.nowUS / 1000
		v.judge()
		*s = v.snapshot(mutex)
	}
	return nil
}

func (v *view) snapshot(mutex string) lease.Snapshot {
	s := lease.Snapshot{Mutex: mutex}
	a := v.answer("")
	s.State, s.Owner, s.Info, s.Fence, s.Lease = a.State, a.Owner, a.Info, a.Fence, a.Remaining
	promised, late := v.promise()
	switch {
	case v.owner != "":
		s.TTL, s.Revoked = v.ttl(), v.ours && v.revoked
		s.Acquired = stamp(v.acquiredAt)
		if v.ours {
			s.Acquired = stamp(v.acquired)
		}
		if s.Lease == lease.Forever {
			s.TTL, s.Detail = lease.Forever, "no expiry"
		}
		if v.lost() {
			s.Detail = "its record is gone from simba_mutex"
		}
	case v.kept():
		s.Detail = "the store was emptied: this owner may still be at work"
	default:
		s.Fence, s.Last, s.Released = v.fence, v.last, v.released
	}
	for row := range strings.SplitSeq(v.queue, "\n") {
		f := strings.SplitN(row, "\t", 3)
		if len(f) != 3 || late && f[0] == promised && v.owner == "" {
			continue
		}
		s.Waiters = append(s.Waiters, lease.Waiter{ID: f[0], Info: decoded(f[2])})
	}
	return s
}

// ttl remaining.
func (v *view) ttl() time.Duration {
	if v.lost() || v.ttlAt <= v.now {
		return 0
	}
	return v.until(v.ttlAt)
}

func stamp(ms uint64) time.Time {
	if ms == 0 || ms > 1<<53 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// List is [lease.Backend.List].
func (b *Backend) List(ctx context.Context) ([]string, error) {
	var names []string
	err := b.reading(ctx, func(l *line) error {
		for _, table := range []string{"simba_mutex", "simba_lease"} {
			found, err := l.column(ctx, "SELECT CAST(mutex AS BINARY) FROM "+table)
			if err != nil && number(err) != noSuchTable {
				return err
			}
			names = append(names, found...)
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

func (l *line) column(ctx context.Context, text string) ([]string, error) {
	rows, err := l.conn.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// watchEvery is how often a watcher reads. Nothing in the server tells a
// change, so this is how late one is noticed; two small reads a second are what
// it costs.
const watchEvery = 500 * time.Millisecond

// errWatch: a reading of a watcher did not come through.
var errWatch = errors.New("watching was interrupted")

// Watch is [lease.Backend.Watch]. It reads one number that changes with all of
// the mutexes watched.
func (b *Backend) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	last, err := b.changes(ctx, mutexes)
	if err != nil {
		return err
	}
	ring(lease.Ready)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := b.changes(ctx, mutexes)
		if err != nil {
			return err
		}
		if now != last {
			last = now
			ring(lease.Look)
		}
	}
}

func (b *Backend) changes(ctx context.Context, mutexes []string) (string, error) {
	named, values := "", []any{}
	if len(mutexes) > 0 {
		named = "WHERE mutex IN (?" + strings.Repeat(", ?", len(mutexes)-1) + ")"
		for range 2 { // once a table
			for _, m := range mutexes {
				values = append(values, m)
			}
		}
	}
	limited, cancel := context.WithTimeout(ctx, 10*watchEvery)
	defer cancel()
	var now string
	err := b.reading(limited, func(l *line) error {
		err := l.one(limited, strings.ReplaceAll(changeSQL(), "NAMED", named), values, &now)
		if number(err) != noSuchTable {
			return err
		}
		now = "none"
		if err = l.one(limited, strings.ReplaceAll(jvmChangeSQL(), "NAMED", named), values[:len(mutexes)], &now); number(err) != noSuchTable {
			return err
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return "", errWatch
	}
	return now, err
}
