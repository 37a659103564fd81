package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// tlsConfig reads the files that the URL names.
func (s *settings) tlsConfig() (*tls.Config, error) {
	if s.tls == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.serverName}
	if c.ServerName == "" && s.network == "tcp" {
		c.ServerName, _, _ = net.SplitHostPort(s.addr)
	}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("the file of the ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the file of the ca holds no certificate")
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("the files of cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	// Both were asked for in so many words; a ca makes "preferred" verify.
	c.InsecureSkipVerify = s.tls == "skip-verify" || s.tls == "preferred" && s.ca == ""
	return c, nil
}
