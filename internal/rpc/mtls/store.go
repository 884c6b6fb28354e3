package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Store is the certificate of one identity and the authorities it trusts, as the
// files are now. It is safe for concurrent use.
type Store struct {
	dir, name string
	problem   func(error)

	mu     sync.Mutex
	stamps [2]stamp
	now    *material
}

// material is one reading of the files.
type material struct {
	id    ID
	leaf  *x509.Certificate
	cert  tls.Certificate
	trust *x509.CertPool
}

// stamp tells one file from the next under the same name.
type stamp struct {
	at   time.Time
	size int64
	info os.FileInfo
}

// Open reads NAME.pem and ca.pem of dir. problem is called when a later file cannot
// be used, once for each; it may be nil.
func Open(dir, name string, problem func(error)) (*Store, error) {
	if problem == nil {
		problem = func(error) {}
	}
	s := &Store{dir: dir, name: name, problem: problem}
	s.stamps = s.look()
	var err error
	s.now, err = s.read()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ID is who the certificate says we are.
func (s *Store) ID() ID { return s.current().id }

// NotAfter is when the certificate ends.
func (s *Store) NotAfter() time.Time { return s.current().leaf.NotAfter }

// current answers what the files hold, reading them again when they changed.
func (s *Store) current() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamps := s.look()
	if !same(stamps, s.stamps) {
		s.stamps = stamps // also after a failure: it is told once
		if m, err := s.read(); err == nil {
			s.now = m
		} else {
			s.problem(err)
		}
	}
	return s.now
}

func (s *Store) look() (out [2]stamp) {
	for i, name := range []string{s.name + ".pem", bundleName} {
		if info, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
			out[i] = stamp{info.ModTime(), info.Size(), info}
		}
	}
	return out
}

func same(a, b [2]stamp) bool {
	for i := range a {
		if !a[i].at.Equal(b[i].at) || a[i].size != b[i].size || (a[i].info == nil) != (b[i].info == nil) ||
			a[i].info != nil && !os.SameFile(a[i].info, b[i].info) {
			return false
		}
	}
	return true
}

func (s *Store) read() (*material, error) {
	trust, err := readBundle(s.dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, s.name+".pem")
	b, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	certs, key, err := parsePEM(path, b)
	if err != nil {
		return nil, err
	}
	const fix = "issue it anew with 'agentctl certs issue'"
	switch {
	case len(certs) == 0 || key == nil:
		return nil, bad(path, "it does not hold both a certificate and its key", fix)
	case !samePublic(key, certs[0]):
		return nil, bad(path, "key and certificate do not belong together", fix)
	}
	m := &material{leaf: certs[0], trust: x509.NewCertPool(), cert: tls.Certificate{PrivateKey: key, Leaf: certs[0]}}
	for _, c := range certs {
		m.cert.Certificate = append(m.cert.Certificate, c.Raw)
	}
	for _, c := range trust {
		m.trust.AddCert(c)
	}
	if m.id, err = IDOf(certs[0]); err != nil {
		return nil, bad(path, err.Error(), fix)
	}
	if m.id.Name != s.name {
		return nil, bad(path, "it is the certificate of "+m.id.Name+", not of "+s.name, fix)
	}
	return m, nil
}

// Certificate is what the store shows now.
func (s *Store) Certificate() *x509.Certificate { return s.current().leaf }

// Trusted reports whether one of the authorities vouches for the certificate.
func (s *Store) Trusted() bool {
	m := s.current()
	_, err := m.leaf.Verify(x509.VerifyOptions{Roots: m.trust, CurrentTime: m.leaf.NotBefore.Add(time.Second), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// Trusted are the authorities in the bundle of dir, newest first.
func Trusted(dir string) ([]*x509.Certificate, error) { return readBundle(dir) }
