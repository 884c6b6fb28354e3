// Package identity implements two commands about identities: `agentctl certs` manages
// the certificates that services and people present on TCP, `agentctl token` the token
// that a caller on this machine presents.
//
// Both edit files of the home and need no running service: whoever may write these
// files is the owner. A change is first recorded in the audit log of the home, by the
// registry where one runs; a log that cannot be written is reported and does not stop
// the change, since a key may have to be revoked at once. A service uses a changed file
// from the next connection or call. What a certificate contains is defined by package
// mtls.
package identity

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/mtls"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Certs answers the command certs.
func Certs(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "certs",
		Short: "Create and renew certificates for services on other machines",
		Long: `Create and renew certificates. On one machine none are needed: services use Unix
sockets. On TCP every caller and every service presents a certificate, and its name,
spiffe://DOMAIN/SERVICE, decides what it may do.

The authority is in tls/ of the home: protect ca.key, and copy only ca.pem and NAME.pem
to another machine. A running service uses a new file from the next connection on; no
call is dropped.`,
		Example: `  agentctl certs init --domain agents.example.org
  agentctl certs issue runner-2
  agentctl certs show`,
	}, initCommand(e), issueCommand(e), rotateCommand(e), showCommand(e))
}

// dir is where the certificates are.
func dir(e *command.Env) (string, error) {
	home, err := e.Home()
	return cmp.Or(e.Flags.TLS, home.TLSDir()), err
}

// daysFlag adds --days, the lifetime of certificates.
func daysFlag(c *cobra.Command, n *int) {
	*n = int(mtls.LeafLife / day)
	command.NumberFlag(c, n, "days", 1, 20*365, "lifetime of the certificates in days")
}

const day = 24 * time.Hour

func initCommand(e *command.Env) *cobra.Command {
	var domain string
	var n int
	c := &cobra.Command{
		Use:   "init",
		Short: "Create an authority and certificates for owner and services",
		Example: `  agentctl certs init
  agentctl certs init --domain agents.example.org`,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := mtls.NewID(domain, "owner"); err != nil {
				return err
			}
			d, err := dir(e)
			if err != nil {
				return err
			}
			a, err := mtls.Init(d, domain, mtls.AuthorityLife)
			if err != nil {
				return err
			}
			note(c.Context(), e, registry.IdentityChange_IDENTITY_CHANGE_AUTHORITY_MADE, "owner", "registry", "runner", "deliverer", "gateway")
			return issue(e, a, time.Duration(n)*day, "owner", "registry", "runner", "deliverer", "gateway")
		},
	}
	domain = "theclaw.local"
	command.TextFlag(c.Flags(), &domain, "domain", command.Domain, "trust domain: the middle part of every name")
	daysFlag(c, &n)
	return c
}

func issueCommand(e *command.Env) *cobra.Command {
	var n int
	c := &cobra.Command{
		Use:   "issue NAME...",
		Short: "Create a certificate for the owner or a service",
		Example: `  agentctl certs issue runner-2
  agentctl certs issue owner --days 7`,
		RunE: func(c *cobra.Command, names []string) error {
			for _, name := range names {
				if _, err := mtls.NewID("check", name); err != nil {
					return err
				}
			}
			d, err := dir(e)
			if err != nil {
				return err
			}
			a, err := mtls.OpenAuthority(d)
			if err != nil {
				return err
			}
			note(c.Context(), e, registry.IdentityChange_IDENTITY_CHANGE_CERTIFICATE_ISSUED, names...)
			return issue(e, a, time.Duration(n)*day, names...)
		},
	}
	daysFlag(c, &n)
	return c
}

func rotateCommand(e *command.Env) *cobra.Command {
	var n int
	var ca, retire bool
	c := &cobra.Command{
		Use:   "rotate [NAME...]",
		Short: "Replace certificates, or the authority, with new keys",
		Long: `Replace the named certificates, or all in this home, with new keys.

With --ca the authority is replaced too. The previous one stays trusted, so that other
machines keep working until their ca.pem and certificate have been copied; then remove it
with --retire. From then on its certificates are refused.`,
		Example: `  agentctl certs rotate
  agentctl certs rotate runner-2
  agentctl certs rotate --ca
  agentctl certs rotate --retire`,
		RunE: func(c *cobra.Command, names []string) error {
			if retire && (ca || len(names) > 0) {
				return command.Usage(c, "--retire stands alone")
			}
			d, err := dir(e)
			if err != nil {
				return err
			}
			a, err := mtls.OpenAuthority(d)
			if err != nil {
				return err
			}
			if retire {
				note(c.Context(), e, registry.IdentityChange_IDENTITY_CHANGE_AUTHORITY_RETIRED)
				return a.Retire()
			}
			if len(names) == 0 {
				if names, err = mtls.Names(d); err != nil {
					return err
				}
			}
			for _, name := range names {
				if _, err := mtls.NewID(a.Domain(), name); err != nil {
					return err
				}
			}
			change := registry.IdentityChange_IDENTITY_CHANGE_CERTIFICATE_ROTATED
			if ca {
				change = registry.IdentityChange_IDENTITY_CHANGE_AUTHORITY_ROTATED
			}
			note(c.Context(), e, change, names...)
			if ca {
				if err := a.Renew(mtls.AuthorityLife); err != nil {
					return err
				}
			}
			return issue(e, a, time.Duration(n)*day, names...)
		},
	}
	daysFlag(c, &n)
	c.Flags().BoolVar(&ca, "ca", false, "replace the authority too")
	c.Flags().BoolVar(&retire, "retire", false, "trust only the newest authority")
	return c
}

// CertificateInfo is a certificate for programs.
type CertificateInfo struct {
	Name     string    `json:"name"`
	Identity string    `json:"identity"`
	Serial   string    `json:"serial"`
	From     time.Time `json:"not_before"`
	Until    time.Time `json:"not_after"`
	File     string    `json:"file"`
	Problem  string    `json:"problem"`
	Unusable bool      `json:"-"` // not only soon
}

func show(d, name string, c *x509.Certificate) CertificateInfo {
	s := CertificateInfo{Name: name, Serial: c.SerialNumber.Text(16), From: c.NotBefore, Until: c.NotAfter, File: filepath.Join(d, name+".pem")}
	if len(c.URIs) == 1 {
		s.Identity = c.URIs[0].String()
	}
	return s
}

func issue(e *command.Env, a *mtls.Authority, life time.Duration, names ...string) error {
	out := []CertificateInfo{}
	for _, name := range names {
		c, err := a.Issue(name, life)
		if err != nil {
			return err
		}
		out = append(out, show(a.Dir(), name, c))
	}
	return e.Print(out, names, func() error {
		for _, s := range out {
			fmt.Fprintf(e.Out, "%s until %s: %s\n", s.Identity, s.Until.Format(time.DateOnly), s.File)
		}
		return nil
	})
}

// soon is when a certificate's end is worth a word.
const soon = 14 * day

func showCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Show the certificates in this home and when they expire",
		Long:    "Show the certificates in this home and when they expire. The exit code is 1 when one\ncannot be used.",
		Example: "  agentctl certs show\n  agentctl certs show --json | jq '.[].not_after'",
		RunE: func(*cobra.Command, []string) error {
			d, err := dir(e)
			if err != nil {
				return err
			}
			list, err := ListCertificates(d)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "name", "identity", "until", "file", "problem").Wide("file")
			err = screen.List(t, list, func(s CertificateInfo) []any {
				return []any{s.Name, s.Identity, s.Until.Format(time.DateOnly), s.File, s.Problem}
			})
			if err == nil && slices.ContainsFunc(list, func(s CertificateInfo) bool { return s.Unusable && !strings.HasPrefix(s.Name, "ca") }) {
				return &command.ReportedError{}
			}
			return err
		},
	}
}

// ListCertificates returns the contents of a directory of certificates: the authorities, the
// newest first, and then each name.
func ListCertificates(d string) ([]CertificateInfo, error) {
	trust, err := mtls.Trusted(d)
	if err != nil {
		return nil, err
	}
	var list []CertificateInfo
	for i, c := range trust {
		s := show(d, "ca", c)
		if i > 0 {
			s.Name = "ca (earlier)"
		}
		s.Problem, s.Unusable = life(c)
		list = append(list, s)
	}
	names, err := mtls.Names(d)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s := CertificateInfo{Name: name, File: filepath.Join(d, name+".pem"), Unusable: true}
		store, err := mtls.Open(d, name, nil)
		if err != nil {
			s.Problem = strings.TrimPrefix(fault.Line(err), "Error: ")
		} else {
			s = show(d, name, store.Certificate())
			if s.Problem, s.Unusable = life(store.Certificate()); s.Problem == "" && !store.Trusted() {
				s.Problem, s.Unusable = "no authority in ca.pem vouches for it", true
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// life says what is wrong with a certificate's time.
func life(c *x509.Certificate) (problem string, over bool) {
	now := time.Now()
	switch {
	case now.After(c.NotAfter):
		return "it has ended", true
	case now.Before(c.NotBefore):
		return "it is not valid yet", true
	case c.NotAfter.Sub(now) < soon:
		return fmt.Sprintf("it ends in %d days", int(c.NotAfter.Sub(now).Hours()/24)), false
	}
	return "", false
}
