package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/identity"
	"github.com/theclaw/agents/internal/fault"
)

// certs checks the certificates, where there are some.
func (x *examination) certs() {
	dir := cmp.Or(x.env.Flags.TLS, x.home.TLSDir())
	if _, err := os.Stat(dir); err != nil {
		return // services speak over sockets
	}
	list, err := identity.ListCertificates(dir)
	if err != nil {
		f := fault.From(err)
		x.note("certs", problem, f.Fix, "%s", f.What)
		return
	}
	_, err = os.Stat(filepath.Join(dir, "ca.key"))
	issuer, bad := err == nil, false
	var first *identity.CertificateInfo
	for i, s := range list {
		if s.Problem != "" {
			bad = true
			fix := "copy a new one from where they are issued"
			switch {
			case issuer && s.Name == "ca":
				fix = "agentctl certs rotate --ca"
			case s.Name == "ca (earlier)":
				fix = "when every machine has the new ca.pem: agentctl certs rotate --retire"
			case issuer:
				fix = "agentctl certs rotate " + s.Name
			}
			x.note("certs", map[bool]string{true: problem, false: warning}[s.Unusable], fix, "%s: %s", s.Name, s.Problem)
		}
		if first == nil || s.Until.Before(first.Until) {
			first = &list[i]
		}
	}
	if !bad && first != nil {
		x.good("certs", "%s", fmt.Sprintf("%d, the first to end is %s in %d days", len(list), first.Name, int(time.Until(first.Until).Hours()/24)))
	}
}
