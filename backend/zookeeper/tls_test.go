package zookeeper

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// terminate takes TLS off connections to a server, and wants to know its clients.
func terminate(t *testing.T, c backendtest.Certificates, target string) (addr string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.ServerCert, c.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
				_ = from.Close()
			}
			go pipe(server, client)
			go pipe(client, server)
		}
	}()
	return ln.Addr().String()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	c := backendtest.MakeCertificates(t)
	z := serve(t, backendtest.ZooKeeperOptions{Config: outspoken})
	addr := terminate(t, c, z.Addr)
	try := func(options string) error {
		b := open(t, "zk://"+addr+"?tls=true"+options)
		s := b.Session("m", lease.Contender{ID: "x"})
		defer func() { _ = s.Close() }()
		a, err := s.Try(t.Context(), lease.TryRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Queue: true})
		if err == nil && a.State != lease.Mine {
			t.Errorf("%+v", a)
		}
		return err
	}
	pair := "&cert=" + c.ClientCert + "&key=" + c.ClientKey
	if err := try("&ca=" + c.CA + pair); err != nil {
		t.Error(err)
	}
	// Four-letter words go the same way.
	advised(t, findings(t, "zk://"+addr+"?tls=true&ca="+c.CA+pair), map[string]string{"ensemble": "run three", "durability": "forceSync=no"})
	for what, options := range map[string]string{
		"an unknown authority": pair, "another name": "&server_name=elsewhere&ca=" + c.CA + pair, "no such file": "&ca=/nosuch",
	} {
		if err := try(options); !lease.IsPermanent(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := try("&ca=" + c.CA); err == nil { // refused by the server, after the handshake
		t.Error("it is let in without a certificate")
	}
}
