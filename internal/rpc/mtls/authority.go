package mtls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// How long certificates live unless said otherwise. An authority outlives many
// of its certificates.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	LeafLife      = 90 * 24 * time.Hour
)

// backdate is for clocks that are behind ours.
const backdate = 5 * time.Minute

// Authority issues certificates into its directory.
type Authority struct {
	dir    string
	domain string
	trust  []*x509.Certificate // what ca.pem holds; the first is ours
	key    crypto.Signer
}

// Init makes an authority in dir. One that is there already is not replaced.
func Init(dir, domain string, life time.Duration) (*Authority, error) {
	if _, err := NewID(domain, "owner"); err != nil {
		return nil, err
	}
	for _, name := range []string{bundleName, caKeyName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, bad(filepath.Join(dir, name), err.Error(), "give the directory to the user of the services")
		} else if err == nil {
			return nil, fault.New(codes.AlreadyExists, fault.CertificateInvalid, "there is an authority in "+dir+" already",
				"use it; 'agentctl certs rotate --ca' makes a new one and keeps the old one trusted meanwhile")
		}
	}
	a := &Authority{dir: dir, domain: domain}
	return a, a.renew(life)
}

// OpenAuthority reads the authority of dir.
func OpenAuthority(dir string) (*Authority, error) {
	trust, err := readBundle(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, caKeyName)
	b, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	_, key, err := parsePEM(path, b)
	if err != nil {
		return nil, err
	}
	if key == nil || !samePublic(key, trust[0]) {
		return nil, bad(path, "it is not the key of the first authority in "+bundleName, "restore both files from one backup")
	}
	a := &Authority{dir: dir, trust: trust, key: key}
	if a.domain = domainOf(trust[0]); a.domain == "" {
		return nil, bad(filepath.Join(dir, bundleName), "it names no trust domain", "issue with the program that made this authority")
	}
	return a, nil
}

// Domain is the trust domain.
func (a *Authority) Domain() string { return a.domain }

// Dir is where the certificates are.
func (a *Authority) Dir() string { return a.dir }

// Renew makes a new key and authority certificate. The earlier ones that have not
// ended stay trusted, so that whoever still shows their certificates is let in;
// Retire ends that.
func (a *Authority) Renew(life time.Duration) error { return a.renew(life) }

func (a *Authority) renew(life time.Duration) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "TheClaw agents authority of " + a.domain},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:     []*url.URL{{Scheme: "spiffe", Host: a.domain}},
	}
	c, err := sign(t, t, key.Public(), key)
	if err != nil {
		return err
	}
	trust := []*x509.Certificate{c}
	for _, old := range a.trust {
		if old.NotAfter.After(now) {
			trust = append(trust, old)
		}
	}
	// The bundle first: trusting what signs nothing yet is harmless, a certificate
	// of an authority that nobody trusts is not.
	if err := write(a.dir, bundleName, trust, nil); err != nil {
		return err
	}
	if err := write(a.dir, caKeyName, nil, key); err != nil {
		return err
	}
	a.trust, a.key = trust, key
	return nil
}

// Retire trusts only the newest authority from now on.
func (a *Authority) Retire() error {
	a.trust = a.trust[:1]
	return write(a.dir, bundleName, a.trust, nil)
}

// Issue writes NAME.pem with a new key and answers its certificate.
func (a *Authority) Issue(name string, life time.Duration) (*x509.Certificate, error) {
	id, err := NewID(a.domain, name)
	if err != nil {
		return nil, err
	}
	c, key, err := a.leaf(id.URL(), time.Now().Add(-backdate), time.Now().Add(life))
	if err != nil {
		return nil, err
	}
	return c, write(a.dir, name+".pem", []*x509.Certificate{c}, key)
}

func (a *Authority) leaf(name *url.URL, from, to time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if end := a.trust[0].NotAfter; to.After(end) {
		to = end // a chain is no better than its shortest link
	}
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: from, NotAfter: to, URIs: []*url.URL{name},
		Subject:     pkix.Name{CommonName: strings.TrimPrefix(name.Path, "/")},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	c, err := sign(t, a.trust[0], key.Public(), a.key)
	return c, key, err
}

// Names are the identities that have a certificate in dir, by name.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".pem"); ok && nameRule().MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// readBundle reads the trusted authorities.
func readBundle(dir string) ([]*x509.Certificate, error) {
	path := filepath.Join(dir, bundleName)
	b, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	certs, _, err := parsePEM(path, b)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, bad(path, "it holds no certificate", "run 'agentctl certs init', or copy it from where certificates are issued")
	}
	return certs, nil
}

func domainOf(c *x509.Certificate) string {
	if len(c.URIs) == 1 && c.URIs[0].Scheme == "spiffe" {
		return c.URIs[0].Host
	}
	return ""
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, says its documentation
	b[0] &= 0x7f        // positive
	return new(big.Int).SetBytes(b)
}

func sign(t, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

func samePublic(key crypto.Signer, c *x509.Certificate) bool {
	p, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && p.Equal(c.PublicKey)
}
