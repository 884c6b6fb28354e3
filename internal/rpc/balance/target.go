package balance

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/fault"
)

// CheckTarget returns a usage error unless target is one that [Dial] takes: a socket, a
// TCP address, or a comma-separated list of TCP addresses. It does not resolve a name and
// connects to nothing: without it a typing error is reported as a certificate that is
// missing.
func CheckTarget(target string) error {
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" || strings.HasPrefix(target, "unix://") && path[0] != '/' {
			return notAddress(target)
		}
		return nil
	}
	for i, part := range strings.Split(target, ",") {
		address, ok := strings.CutPrefix(strings.TrimSpace(part), "dns:")
		if rest, slashes := strings.CutPrefix(address, "//"); slashes { // dns://RESOLVER/host:port
			var path bool
			if _, address, path = strings.Cut(rest, "/"); !path {
				return notAddress(target)
			}
		}
		// Dial adds the scheme to the later members of a list.
		if !ok && i == 0 {
			return notAddress(target)
		}
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			return notAddress(target)
		}
	}
	return nil
}

func notAddress(target string) error {
	return fault.Usage(fmt.Sprintf("%.200q is not an address", target), "use unix:///path or dns:///host:port")
}
