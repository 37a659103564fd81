package backendtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are PEM files made for one test: an authority, and one pair each
// for a server on loopback and for a client.
type Certificates struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string
}

// MakeCertificates writes a new set.
func MakeCertificates(t testing.TB) Certificates {
	t.Helper()
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	serial := int64(0)
	template := func(name string) *x509.Certificate {
		serial++
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	authority, caKey := template("test authority"), newKey()
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage |= x509.KeyUsageCertSign
	sign := func(c *x509.Certificate, key *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	pair := func(name string, usage x509.ExtKeyUsage) (cert, keyFile string) {
		c, key := template(name), newKey()
		c.ExtKeyUsage = []x509.ExtKeyUsage{usage}
		c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return file(name+".crt", "CERTIFICATE", sign(c, key)), file(name+".key", "EC PRIVATE KEY", der)
	}
	var c Certificates
	c.CA = file("ca.crt", "CERTIFICATE", sign(authority, caKey))
	c.ServerCert, c.ServerKey = pair("server", x509.ExtKeyUsageServerAuth)
	c.ClientCert, c.ClientKey = pair("client", x509.ExtKeyUsageClientAuth)
	return c
}
