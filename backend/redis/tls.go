package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/simba-lock/simba/lease"
)

// tlsConfig reads the files that a URL names: authorities to trust instead of
// the system's, and a client certificate with its key.
func tlsConfig(ca, cert, key, serverName string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: ca: %w", ErrURL, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: ca: there is no certificate in the file", ErrURL)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%w: cert and key are needed together", ErrURL)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%w: cert and key: %w", ErrURL, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// errPlain: a Redis without TLS takes the beginning of a handshake for a line
// that is not finished, and waits for the rest of it.
var errPlain = errors.New("TLS: the server does not use it on this port (redis:// instead of rediss://?)")

// helloDoubted is how long a handshake may go on before the server is asked in
// plain text. It takes a tenth of that on a slow network.
const helloDoubted = time.Second

// dialer makes one more connection to the same server.
type dialer func(context.Context) (net.Conn, error)

// secured does the handshake. The connection is closed if it fails.
func secured(ctx context.Context, nc net.Conn, config *tls.Config, dial dialer) (net.Conn, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	doubt := time.AfterFunc(helloDoubted, func() {
		if talksPlainly(ctx, dial) {
			giveUp(lease.Permanent(errPlain))
		}
	})
	defer doubt.Stop()
	t := tls.Client(nc, config)
	err := t.HandshakeContext(ctx)
	if err == nil {
		return t, nil
	}
	_ = nc.Close()
	if cause := context.Cause(ctx); errors.Is(cause, errPlain) {
		err = cause
	}
	return nil, err
}

// talksPlainly: a server with TLS answers plain text with an alert or not at all.
func talksPlainly(ctx context.Context, dial dialer) bool {
	nc, err := dial(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = nc.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
		return false
	}
	var first [1]byte
	_, err = nc.Read(first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}
