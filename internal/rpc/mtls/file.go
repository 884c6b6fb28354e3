package mtls

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/fault"
)

// Names in the directory.
const (
	bundleName = "ca.pem"
	caKeyName  = "ca.key"
)

// maxFile is more than any bundle of ours.
const maxFile = 1 << 20

// readPrivate reads a file that only we can read. A link is refused.
func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.CertificateInvalid, "there is no certificate file "+path, absent(path)), err)
	}
	if err != nil {
		return nil, bad(path, err.Error(), "give the file to the user of the services")
	}
	defer func() { _ = f.Close() }() // only read
	fi, err := f.Stat()
	if err != nil {
		return nil, bad(path, err.Error(), "check the disk")
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 {
		return nil, bad(path, fmt.Sprintf("its mode is %v", fi.Mode()), "run chmod 600 "+path+"; if others could read it, issue it anew")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, bad(path, err.Error(), "check the disk")
	}
	return b, nil
}

// absent says how to get a file that is not there.
func absent(path string) string {
	switch name := filepath.Base(path); name {
	case bundleName:
		return "make the authority with 'agentctl certs init', or copy " + bundleName + " from the machine that has it"
	case caKeyName:
		return "use the home in which 'agentctl certs init' was run: only there certificates are issued"
	default:
		return "make it with 'agentctl certs issue " + strings.TrimSuffix(name, ".pem") + "' in the home of the authority, and copy it here"
	}
}

func bad(path, problem, fix string) error {
	return fault.New(codes.FailedPrecondition, fault.CertificateInvalid, "the certificate file "+path+" cannot be used: "+problem, fix)
}

// parsePEM reads certificates and at most one key.
func parsePEM(path string, b []byte) (certs []*x509.Certificate, key crypto.Signer, err error) {
	const fix = "issue it anew with 'agentctl certs issue'"
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return certs, key, nil
		}
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, bad(path, err.Error(), fix)
			}
			certs = append(certs, c)
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			signer, ok := k.(crypto.Signer)
			if err != nil || !ok || key != nil {
				return nil, nil, bad(path, "its private key is of an unsupported type", fix)
			}
			key = signer
		}
	}
}

// write replaces a file of the directory with certificates and a key, 0600.
func write(dir, name string, certs []*x509.Certificate, key crypto.Signer) (err error) {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if key != nil {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for certificates: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open directory for certificates: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := safefile.Replace(root, name, out); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}
