package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/simba-lock/simba/lease"
)

var (
	_ lease.Backend  = (*Backend)(nil)
	_ lease.Examiner = (*Backend)(nil)
	_ lease.Session  = (*session)(nil)
)

// Options are what does not stand in the URL.
type Options struct {
	// Password, if not empty, is used instead of the URL's.
	Password string
}

// Backend keeps mutexes in a database of a MySQL or MariaDB server.
type Backend struct {
	set settings
	// Sessions dial from these two and keep their own connections: one each, and
	// a second one for the moment of a look while the first waits for a lock.
	lines, bare *sql.DB
	// reads is for everything else.
	reads *sql.DB

	layout atomic.Pointer[layout]
	making chan struct{} // held by whoever looks the tables up
	deaf   atomic.Bool   // there is no GET_LOCK here
}

const (
	// Readers share so many connections; the rest wait for their turn.
	maxReads = 4
	// One is kept for the next reading of somebody who watches.
	idleRead = 5 * time.Second
)

// Open reads the URL. It does no input or output: the first call does. Errors
// are ErrURL.
func Open(rawURL string, o Options) (*Backend, error) {
	set, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if o.Password != "" {
		set.password = o.Password
	}
	b := &Backend{set: set, making: make(chan struct{}, 1)}
	b.deaf.Store(set.deaf)
	b.lines = sql.OpenDB(&dialer{set: &b.set})
	b.lines.SetMaxIdleConns(-1)
	b.bare = sql.OpenDB(&dialer{set: &b.set, bare: true})
	b.bare.SetMaxIdleConns(-1)
	b.reads = sql.OpenDB(&dialer{set: &b.set})
	b.reads.SetMaxOpenConns(maxReads)
	b.reads.SetMaxIdleConns(1)
	b.reads.SetConnMaxIdleTime(idleRead)
	return b, nil
}

// Name is the URL without its password.
func (b *Backend) Name() string { return b.set.name }

// Session is [lease.Backend.Session].
func (b *Backend) Session(mutex string, c lease.Contender) lease.Session {
	return newSession(b, mutex, c)
}

// Close ends the connections of readers.
func (b *Backend) Close() error {
	_ = b.reads.Close()
	_ = b.bare.Close()
	return b.lines.Close()
}

// reading lends a connection for reading; one that breaks is not lent again.
func (b *Backend) reading(ctx context.Context, f func(*line) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := b.reads.Conn(ctx)
	if err != nil {
		return sorted(ctx, err)
	}
	l := &line{conn: conn}
	defer l.close()
	err = f(l)
	if broken(err) {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return sorted(ctx, err)
}

// Revoke is [lease.Backend.Revoke].
func (b *Backend) Revoke(ctx context.Context, mutex, owner string) error {
	return b.reading(ctx, func(l *line) error {
		ok, _, err := l.exec(ctx, revokeSQL, args{"mutex": mutex, "owner": owner})
		if ok || err != nil && number(err) != noSuchTable {
			return err
		}
		v, err := look(ctx, l, mutex, "", "")
		switch {
		case number(err) == noSuchTable:
			return lease.ErrNotOwner
		case err != nil:
			return err
		case v.owner == owner && !v.ours:
			return lease.ErrForeign
		}
		return lease.ErrNotOwner
	})
}
