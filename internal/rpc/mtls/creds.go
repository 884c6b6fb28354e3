package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// Peer is who is on the other end of a connection, as the certificate says.
type Peer struct {
	credentials.TLSInfo
	leaf   *x509.Certificate
	domain string // ours
}

// Caller answers who calls, or why nobody: the certificate has a name that is not
// one of a service here, or has ended since the connection was made.
func (p Peer) Caller() (rpc.Identity, error) {
	id, err := IDOf(p.leaf)
	switch {
	case err != nil:
		return rpc.Identity{}, refused(err.Error(), "issue the certificate with 'agentctl certs issue NAME'")
	case id.Domain != p.domain:
		return rpc.Identity{}, refused(fmt.Sprintf("the certificate %s is not of the trust domain %s", id, p.domain), "use a certificate that was issued for this domain")
	case time.Now().After(p.leaf.NotAfter):
		return rpc.Identity{}, refused(fmt.Sprintf("the certificate %s ended on %s", id, p.leaf.NotAfter.Format(time.DateOnly)), "issue a new one with 'agentctl certs rotate "+id.Name+"' and connect again")
	}
	return id.Identity(), nil
}

func refused(what, fix string) error {
	return fault.New(codes.Unauthenticated, fault.Unauthenticated, what, fix)
}

// Server are the credentials of a server that shows the store's certificate and
// takes only callers that have one of the same authority. refusal is called for each
// handshake that failed; it may be nil.
func Server(s *Store, refusal func(from net.Addr, err error)) credentials.TransportCredentials {
	return &creds{store: s, refusal: refusal}
}

// Client are the credentials of a caller that wants to speak to one service:
// registry, runner or deliverer.
func Client(s *Store, service string) credentials.TransportCredentials {
	return &creds{store: s, want: service}
}

type creds struct {
	store   *Store
	want    string
	refusal func(net.Addr, error)
}

func (c *creds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := c.store.current()
	conn, info, err := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.trust,
		SessionTicketsDisabled: true, // a resumed session would not look at the certificate again
	}).ServerHandshake(raw)
	if err == nil {
		return c.known(conn, info, m)
	}
	if c.refusal != nil {
		c.refusal(raw.RemoteAddr(), err)
	}
	return nil, nil, err
}

func (c *creds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := c.store.current()
	if end := m.leaf.NotAfter; time.Now().After(end) {
		return nil, nil, fmt.Errorf("our certificate %s ended on %s", m.id, end.Format(time.DateOnly))
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert},
		// Not by host name: the name that counts is the URI, checked below against
		// our own authorities, and without that check there is no connection.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection:   func(st tls.ConnectionState) error { return verifyServer(st, m, c.want) },
	}
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return c.known(conn, info, m)
}

func (c *creds) known(conn net.Conn, info credentials.AuthInfo, m *material) (net.Conn, credentials.AuthInfo, error) {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return nil, nil, errors.Join(errors.New("the other side showed no certificate"), conn.Close())
	}
	return conn, Peer{t, t.State.PeerCertificates[0], m.id.Domain}, nil
}

// verifyServer checks chain, time, domain and that it is the service we meant.
func verifyServer(st tls.ConnectionState, m *material, want string) error {
	if len(st.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	leaf, between := st.PeerCertificates[0], x509.NewCertPool()
	for _, c := range st.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: m.trust, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return fmt.Errorf("the server's certificate: %w", err)
	}
	id, err := IDOf(leaf)
	if err != nil {
		return fmt.Errorf("the server's certificate: %w", err)
	}
	if id.Domain != m.id.Domain || id.Identity().Role() != want {
		return fmt.Errorf("the server is %s, not the %s of %s", id, want, m.id.Domain)
	}
	return nil
}

func (c *creds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c *creds) Clone() credentials.TransportCredentials { d := *c; return &d }

func (c *creds) OverrideServerName(string) error { return nil }

// alerts are what a server that refuses tells, in the words of crypto/tls, and
// what they mean for the caller.
var alerts = []struct{ text, what, fix string }{
	{"tls: expired certificate", "the server says that our certificate has ended", "issue a new one with 'agentctl certs rotate', on the machine that has ca.key"},
	{"tls: unknown certificate authority", "the server does not trust the authority of our certificate", "copy the server's ca.pem and a certificate that was issued there"},
	{"tls: certificate required", "the server requires a certificate, and none was presented", "issue one with 'agentctl certs issue owner'"},
	{"tls: bad certificate", "the server does not take our certificate", "see the server's log; issue a new one with 'agentctl certs issue'"},
	{"the server's certificate: ", "the server's certificate is not to be trusted", "compare ca.pem on both sides, and the dates in 'agentctl certs show'"},
	{"our certificate ", "our certificate has ended", "issue a new one with 'agentctl certs rotate', on the machine that has ca.key"},
	{"the server is spiffe://", "another service answers at this address", "check the address"},
	{"first record does not look like a TLS handshake", "the server at this address speaks no TLS", "check the address and the port"},
}

// Explain turns the error of a call whose connection a certificate ended into one
// that says so; nil when that is not what happened.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, a := range alerts {
		if _, rest, found := strings.Cut(text, a.text); found {
			what := a.what
			if strings.HasSuffix(a.text, " ") || strings.HasSuffix(a.text, "//") {
				what += " (" + strings.Trim(a.text+rest, `" `) + ")"
			}
			return fault.Wrap(fault.New(codes.Unauthenticated, fault.CertificateInvalid, what, a.fix), err)
		}
	}
	return nil
}
