package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// Peer is who is on the other end of a Unix socket, as the kernel says.
type Peer struct {
	credentials.CommonAuthInfo
	UID uint32
	PID int32 // as of connect; for logs only, it may be reused
}

// AuthType names the method for grpc.
func (Peer) AuthType() string { return "peercred" }

var errNotUnix = errors.New("not a Unix socket")

// PeerCredentials are transport credentials for Unix sockets. The server's side
// learns the caller's user id (and leaves the judgement to the access check, so
// that a caller gets a readable answer). The client's side refuses a server of
// another user before the token is shown to it. Other connections are refused.
func PeerCredentials() credentials.TransportCredentials { return peerCreds{} }

type peerCreds struct{}

func (peerCreds) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := peerOf(c)
	if err != nil {
		return nil, nil, err
	}
	if p.UID != uint32(os.Geteuid()) {
		return nil, nil, fmt.Errorf("connect to service: the socket is served by user id %d, not ours", p.UID)
	}
	return c, p, nil
}

func (peerCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := peerOf(c)
	if err != nil {
		return nil, nil, err
	}
	return c, p, nil
}

func (peerCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

func (p peerCreds) Clone() credentials.TransportCredentials { return p }

func (peerCreds) OverrideServerName(string) error { return nil }

func peerOf(c net.Conn) (Peer, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("read peer credentials: %w", errNotUnix)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	var uid uint32
	var pid int32
	var optErr error
	if err := raw.Control(func(fd uintptr) { uid, pid, optErr = peerIDs(int(fd)) }); err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	if optErr != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", optErr)
	}
	// Nothing leaves the kernel, so the channel counts as private.
	return Peer{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, uid, pid}, nil
}
