// Package mtls authenticates services on TCP: their certificates, a small authority that
// issues them for users who have none, and a handshake that accepts nobody without one.
//
// It promises:
//   - TLS 1.3 only, both sides present a certificate of the same authority, and the
//     name that counts is the one URI in it, spiffe://<domain>/<service>. A server
//     is dialed as a service and refused when it is another one.
//   - A certificate and its key are one file, replaced in one step: no reader sees
//     half of a pair. It is read again at the next handshake after it changed; calls
//     under way are not affected. A new file that cannot be used is reported and the
//     old one kept.
//   - Files are 0600 and a file that others may read is refused: its content is no
//     longer secret.
//   - Every refusal says which certificate was refused, why, and what to do.
//
// It does not decide who may call what (rpc/serve), makes no network calls of its own,
// and supports no revocation list: `certs rotate --ca` invalidates a certificate that
// must not be used any more.
//
// The directory, $THECLAW_HOME/tls:
//
//	ca.pem      the authorities that are trusted, newest first
//	ca.key      the key of the newest; only where certificates are issued
//	NAME.pem    certificate and key of one identity: owner, registry, runner,
//	            runner-2, deliverer ...
package mtls
