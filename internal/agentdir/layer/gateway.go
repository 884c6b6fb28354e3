package layer

import (
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
)

const (
	// DefaultHTTP is where the gateway listens without a setting and without a profile.
	DefaultHTTP = "127.0.0.1:18789"
	// HTTPOff is the value of gateway.http with which the gateway does not listen.
	HTTPOff = "off"
	// maxProxies is how many ranges of proxies there can be.
	maxProxies = 64
)

// ProfileHTTP is where the gateway listens without a setting: [DefaultHTTP], and with a profile at
// a port of its own from 18790 to 19789, so that two profiles can run at a time.
func ProfileHTTP(profile string) string {
	if profile == "" {
		return DefaultHTTP
	}
	return fmt.Sprintf("127.0.0.1:%d", 18790+crc32.ChecksumIEEE([]byte(profile))%1000)
}

// Gateway is where the gateway of a home listens.
type Gateway struct {
	// HTTP is the address at which it listens; [HTTPOff]: it does not; empty: the default.
	HTTP string
	// PublicURL is the address of the proxy before it, such as https://claw.example.org; empty:
	// there is none.
	PublicURL string
	// TrustedProxies are the ranges of addresses whose requests are taken besides those of
	// loopback, and whose X-Forwarded-For counts.
	TrustedProxies []netip.Prefix
}

func (g Gateway) isZero() bool {
	return g.HTTP == "" && g.PublicURL == "" && len(g.TrustedProxies) == 0
}

// gateway reads the section of the gateway of this machine.
func (l *layer) gateway(kv *ast.MappingValueNode, s *HomeSettings) {
	at := map[string]ast.Node{}
	var proxies []string
	g := &s.Gateway
	l.object(kv.Value, "gateway", map[string]any{"http": &g.HTTP, "public_url": &g.PublicURL, "trusted_proxies": &proxies}, at)
	failed := false
	report := func(key, problem string) {
		if problem != "" {
			l.fail(orElse(at[key], kv), "gateway."+key, "gateway."+key+": "+problem)
			failed = true
		}
	}
	report("public_url", checkPublicURL(g.PublicURL))
	g.PublicURL = strings.TrimSuffix(g.PublicURL, "/")
	var problem string
	g.TrustedProxies, problem = readProxies(proxies)
	report("trusted_proxies", problem)
	if g.HTTP != "" && !failed { // without the two keys this one is wrong, too
		report("http", g.Check(g.HTTP))
	}
}

// Check returns what is wrong with an address to listen at, or an empty text. An address other
// than one of loopback needs a proxy that ends TLS: what people write would pass a network in
// clear text.
func (g Gateway) Check(addr string) string {
	if addr == HTTPOff {
		return ""
	}
	host, port, err := net.SplitHostPort(addr)
	_, bad := strconv.ParseUint(port, 10, 16)
	ip, unknown := netip.ParseAddr(host)
	switch {
	case err != nil || bad != nil || unknown != nil || ip.Zone() != "":
		return fmt.Sprintf("%q is not ADDRESS:PORT, such as %s; off listens nowhere", config.Clip(addr), DefaultHTTP)
	case !ip.Unmap().IsLoopback() && (g.PublicURL == "" || len(g.TrustedProxies) == 0):
		return fmt.Sprintf("%s is not an address of loopback; use 127.0.0.1:%s, or set gateway.public_url and gateway.trusted_proxies to those of the proxy that ends TLS", config.Clip(host), port)
	}
	return ""
}

// checkPublicURL returns what is wrong with a gateway.public_url.
func checkPublicURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || config.IsLine(text) != "" {
		return fmt.Sprintf("%q is not https://HOST or https://HOST:PORT", config.Clip(text))
	}
	return ""
}

// readProxies reads gateway.trusted_proxies, and returns what is wrong with it.
func readProxies(list []string) (out []netip.Prefix, problem string) {
	if len(list) > maxProxies {
		return nil, fmt.Sprintf("there are %d ranges, and %d are the most", len(list), maxProxies)
	}
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		switch a, single := netip.ParseAddr(text); {
		case single == nil && a.Zone() == "":
			return nil, fmt.Sprintf("%s is an address; write it as %s/%d", a, a, a.BitLen())
		case err != nil:
			return nil, fmt.Sprintf("%q is not a range of addresses, such as 10.0.0.0/24", config.Clip(text))
		case p.Bits() == 0:
			return nil, fmt.Sprintf("%s is every address; write those of the proxies", p)
		case p.Addr().Is4In6():
			return nil, fmt.Sprintf("%s is an IPv4 address in the form of IPv6; write %s", p, p.Addr().Unmap())
		}
		out = append(out, p.Masked())
	}
	return out, ""
}
