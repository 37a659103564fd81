package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/go-sql-driver/mysql"

	"github.com/simba-lock/simba/lease"
)

// Numbers of the server's errors.
const (
	duplicateKey    = 1062
	unknownVariable = 1193
	noSuchTable     = 1146
	interrupted     = 1317
	unknownColumn   = 1054
	duplicateColumn = 1060
)

// refused cannot be mended by trying again: credentials, rights, names, types.
var refused = map[uint16]bool{
	1044: true, // database denied
	1045: true, // wrong password
	1698: true, // no password at all would do
	1049: true, // no such database
	1130: true, // host not allowed
	1142: true, // command on a table denied
	1143: true, // command on a column denied
	1227: true, // privilege needed
	1370: true, // routine denied
	1146: true, // no such table, and it could not be created
	1054: true, // a table of that name has other columns
	1064: true, // no MySQL that we know
	1305: true, // a function is missing
	1193: true, // a variable is missing
	1264: true, // the columns of a table do not take the values
	1292: true,
	1366: true,
	1406: true,
	1265: true,
	1288: true, // not updatable: a view
	1364: true, // a column that we do not know has no default
	4151: true, // account locked (MariaDB)
	3118: true, // account locked
	3955: true, // account locked after wrong passwords (MySQL)
	1820: true, // password expired
	1862: true,
	1251: true, // a way to authenticate that is not known here,
	1524: true, // or not to the server
	3159: true, // require_secure_transport, and tls was not asked for
	1665: true, // binlog_format=STATEMENT does not go with READ COMMITTED
}

// crowded: there is no connection to be had at the moment.
var crowdedNumbers = map[uint16]bool{
	1040: true, // max_connections
	1203: true, // max_user_connections
	1226: true, // a resource of the user
}

// deposed: the server will not do again what it did; another one may, so the
// connection is given up and the address dialed anew.
var deposed = map[uint16]bool{
	1290:  true, // read_only
	1792:  true, // read-only transaction
	1836:  true, // read-only mode
	1053:  true, // shutting down
	1047:  true, // a member that has left its cluster (Galera)
	3032:  true, // offline mode (MySQL)
	1927:  true, // connection killed (MariaDB)
	3169:  true, // session killed
	4031:  true, // idle for too long
	11000: true,
}

// passing: what was waited for has changed.
var passing = map[uint16]bool{
	interrupted: true,
	1205:        true, // waited for a lock too long
	1213:        true, // deadlock
	1969:        true, // max_statement_time (MariaDB)
	3024:        true, // max_execution_time
	3058:        true, // deadlock of GET_LOCK
}

var (
	errBroken  = errors.New("the connection to the server broke")
	errElapsed = errors.New("the server did not answer in time")
	errTables  = errors.New("the tables were not there; they are made anew")
)

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func isCrowded(err error) bool { return crowdedNumbers[number(err)] }

// said tells whether err is an answer of ours, not a failure.
func said(err error) bool {
	for _, answer := range []error{lease.ErrSpent, lease.ErrNotOwner, lease.ErrForeign, lease.ErrNoPush} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return lease.IsPermanent(err)
}

// broken tells whether the connection must not be used again.
func broken(err error) bool {
	n := number(err)
	return err != nil && !said(err) && n == 0 || deposed[n]
}

// sorted is the boundary: what leaves the package is permanent or transient,
// speaks the server's own words and none of the library's.
func sorted(ctx context.Context, err error) error {
	if err == nil || said(err) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errElapsed, ctx.Err())
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	switch n := number(err); {
	case refused[n]:
		return lease.Permanent(err)
	case n != 0:
		return err
	case errors.Is(err, mysql.ErrNoTLS):
		return lease.Permanent(errors.New("the server does not offer TLS"))
	case errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrOldPassword),
		errors.Is(err, mysql.ErrCleartextPassword), errors.Is(err, mysql.ErrNativePassword):
		return lease.Permanent(errors.New("the server asks for a way to authenticate that is not supported or not safe without TLS"))
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verify):
		return lease.Permanent(err)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, mysql.ErrBusyBuffer),
		errors.Is(err, mysql.ErrPktSync), errors.Is(err, mysql.ErrPktSyncMul), errors.Is(err, mysql.ErrMalformPkt):
		return errBroken
	}
	return err
}
