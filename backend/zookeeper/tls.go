package zookeeper

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/simba-lock/simba/lease"
)

// tlsFiles is what the URL says about TLS. Files are read at the first dial.
type tlsFiles struct {
	on, skipVerify bool
	ca, cert, key  string
	serverName     string
}

func (f *tlsFiles) check() error {
	switch {
	case !f.on && (f.ca != "" || f.cert != "" || f.key != "" || f.serverName != ""):
		return errors.New("ca, cert, key and server_name need tls=true")
	case (f.cert == "") != (f.key == ""):
		return errors.New("cert and key go together")
	}
	return nil
}

// load reads the files. What is wrong with them is permanent.
func (f *tlsFiles) load() (*tls.Config, error) {
	cfg := &tls.Config{
		ServerName: f.serverName, InsecureSkipVerify: f.skipVerify, //nolint:gosec // asked for in the URL
		MinVersion: tls.VersionTLS12,
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, lease.Permanent(fmt.Errorf("ca: %w", err))
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, lease.Permanent(fmt.Errorf("ca: no certificate in %s", f.ca))
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, lease.Permanent(fmt.Errorf("cert, key: %w", err))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// dialer connects to one server. Its name is resolved each time, so a name that
// cannot be resolved costs one attempt and not the list.
type dialer struct {
	files  tlsFiles
	config func() (*tls.Config, error)
}

func newDialer(f tlsFiles) *dialer {
	return &dialer{files: f, config: sync.OnceValues(f.load)}
}

func (d *dialer) dial(ctx context.Context, addr string) (net.Conn, error) {
	var plain net.Dialer
	if !d.files.on {
		return plain.DialContext(ctx, "tcp", addr)
	}
	cfg, err := d.config()
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{NetDialer: &plain, Config: cfg}).DialContext(ctx, "tcp", addr)
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	if errors.As(err, &unknown) || errors.As(err, &host) {
		return nil, lease.Permanent(err)
	}
	return conn, err
}
