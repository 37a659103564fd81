package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/simba-lock/simba/lease"
)

// dialer makes connections. A bare one is not set up: that costs a statement,
// which a look that only reads is spared.
type dialer struct {
	set  *settings
	bare bool

	once  sync.Once
	inner driver.Connector
	err   error
}

var _ driver.Connector = (*dialer)(nil)

func (d *dialer) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (d *dialer) Connect(ctx context.Context) (driver.Conn, error) {
	d.once.Do(func() { d.inner, d.err = d.connector() })
	if d.err != nil {
		return nil, lease.Permanent(d.err)
	}
	conn, err := d.inner.Connect(ctx)
	if err != nil || d.bare {
		return conn, err
	}
	exec := func(text string) error {
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, text, nil)
		return err
	}
	if err := setUp(exec); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// setUp is one round trip, unless the server is one that lost the old name of
// the isolation level.
func setUp(exec func(string) error) error {
	err := exec(sessionSQL())
	if number(err) != unknownVariable {
		return err
	}
	if err := exec("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	return exec(isolation().ReplaceAllString(sessionSQL(), ""))
}

// connector is built from values, not from a text with the password in it.
func (d *dialer) connector() (driver.Connector, error) {
	tlsConfig, err := d.set.tlsConfig()
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName = d.set.user, d.set.password, d.set.database
	c.Net, c.Addr = d.set.network, d.set.addr
	c.TLS, c.AllowFallbackToPlaintext = tlsConfig, d.set.tls == "preferred"
	c.Logger = &mysql.NopLogger{}
	// Values are put into the text here: a prepared statement would cost a
	// second round trip for each connection, and most are asked only once.
	c.InterpolateParams = true
	// A renewal within one millisecond changes nothing, yet it is one.
	c.ClientFoundRows = true
	// A peer that is gone without a word is noticed while nothing is sent, too:
	// a waiter may be silent for minutes.
	dial := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3,
	}}
	c.DialFunc = dial.DialContext
	return mysql.NewConnector(c)
}

// line is a connection.
type line struct {
	conn  *sql.Conn
	bare  bool
	id    uint64 // the server's number for it; known once own is
	own   bool   // it holds the lock that says "this contender lives"
	short bool   // its wait_timeout is the short one
}

func dial(ctx context.Context, db *sql.DB, bare bool) (*line, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &line{conn: conn, bare: bare}, nil
}

// alive is false if the server has closed the connection; it costs no round trip.
func (l *line) alive(ctx context.Context) bool {
	return l.conn.Raw(func(c any) error {
		return c.(driver.SessionResetter).ResetSession(ctx)
	}) == nil
}

// close ends the connection; no pool takes it back, since locks belong to it.
func (l *line) close() { _ = l.conn.Close() }

// write runs a statement that changes something.
func (l *line) write(ctx context.Context, text string, values ...any) (sql.Result, error) {
	if l.bare {
		err := setUp(func(text string) error {
			_, err := l.conn.ExecContext(ctx, text)
			return err
		})
		if err != nil {
			return nil, err
		}
		l.bare = false
	}
	return l.conn.ExecContext(ctx, text, values...)
}

// exec runs a statement and tells whether it found what it was to change.
func (l *line) exec(ctx context.Context, s statement, a args) (found bool, r sql.Result, err error) {
	r, err = l.write(ctx, s().text, s().values(a)...)
	if err != nil {
		return false, nil, err
	}
	n, err := r.RowsAffected()
	return n > 0, r, err
}

// insert adds a row unless there is one.
func (l *line) insert(ctx context.Context, text string, values ...any) error {
	_, err := l.write(ctx, text, values...)
	if number(err) == duplicateKey {
		return nil
	}
	return err
}

// one reads a single row.
func (l *line) one(ctx context.Context, text string, values []any, into ...any) error {
	err := l.conn.QueryRowContext(ctx, text, values...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return lease.Permanent(err)
	}
	return err
}
