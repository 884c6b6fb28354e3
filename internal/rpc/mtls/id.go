package mtls

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

// ID is the name in a certificate: spiffe://<domain>/<name>.
type ID struct{ Domain, Name string }

var (
	domainRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?$`) })
	nameRule   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(owner|registry|(runner|deliverer|gateway)(-[a-z0-9]{1,16})?)$`)
	})
)

// String is the id as it stands in a certificate.
func (id ID) String() string { return "spiffe://" + id.Domain + "/" + id.Name }

// URL is the same, for a certificate.
func (id ID) URL() *url.URL { return &url.URL{Scheme: "spiffe", Host: id.Domain, Path: "/" + id.Name} }

// NewID checks both parts; the error is one of usage.
func NewID(domain, name string) (ID, error) {
	if !domainRule().MatchString(domain) {
		return ID{}, fault.Usage(fmt.Sprintf("%.80q is not a trust domain", domain), "use lower-case letters, digits, dots and -, such as agents.example.org")
	}
	if !nameRule().MatchString(name) {
		return ID{}, fault.Usage(fmt.Sprintf("%.80q is not the name of an identity", name), "use owner, registry, runner, deliverer, gateway, or runner-2 and the like")
	}
	return ID{domain, name}, nil
}

// IDOf reads the id of a certificate, which has exactly one.
func IDOf(c *x509.Certificate) (ID, error) {
	if len(c.URIs) != 1 {
		return ID{}, fmt.Errorf("the certificate has %d URI names, want one spiffe://<domain>/<service>", len(c.URIs))
	}
	u := c.URIs[0]
	id := ID{u.Host, strings.TrimPrefix(u.Path, "/")}
	if u.String() != id.String() || !domainRule().MatchString(id.Domain) || !nameRule().MatchString(id.Name) {
		return ID{}, fmt.Errorf("the certificate's name %.120q is not that of a service", u)
	}
	return id, nil
}

// Identity is the caller that the id names.
func (id ID) Identity() rpc.Identity {
	if id.Name == "owner" {
		return rpc.Identity{Kind: rpc.Owner}
	}
	return rpc.Identity{Kind: rpc.Service, Name: id.Name}
}
