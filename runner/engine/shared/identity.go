package shared

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// An Identity is the certificate by which a holder authenticates to clients, and the
// password by which clients authenticate to it. The private key is in memory only. An
// Identity does not change after NewIdentity.
type Identity struct {
	User, Password string
	// Certificate is the certificate in PEM.
	Certificate string
	// TLS is the server's configuration, with the private key.
	TLS *tls.Config
	// Users has one user with the role auth.Ledger.
	Users *auth.Users
}

// The validity of a certificate. Clients pin the certificate, so its expiry adds no
// security. It is as long as common TLS clients accept, since a holder may run long.
const (
	// validBefore is how long before its creation a certificate is already valid, for
	// clocks that are set back.
	validBefore = 24 * time.Hour
	// validAfter is the time after now until which the certificate is valid.
	validAfter = 2 * 365 * 24 * time.Hour
)

// NewIdentity generates a key, a self-signed certificate for the loopback addresses of
// this machine, and a password with at least 128 random bits.
func NewIdentity() (*Identity, error) {
	id := &Identity{User: "local", Password: rand.Text()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate a certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ledger " + rand.Text()},
		NotBefore: now.Add(-validBefore), NotAfter: now.Add(validAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("generate a certificate: %w", err)
	}
	id.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	id.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	id.Users, err = auth.SingleUser(id.User, id.Password, auth.Ledger)
	return id, err
}
