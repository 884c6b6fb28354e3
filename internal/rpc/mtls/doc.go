// Package mtls owns who is who on TCP: the certificates of the services, the small
// authority that issues them for people who have none, and the handshake that
// accepts nobody without one.
//
// It promises:
//   - TLS 1.3 only, both sides show a certificate of the same authority, and the
//     name that counts is the one URI in it, spiffe://<domain>/<service>. A server
//     is dialled as a service and refused when it is another one.
//   - A certificate and its key are one file, replaced in one step: no reader sees
//     half of a pair. It is read again at the next handshake after it changed; calls
//     under way are not touched. A new file that cannot be used is reported and the
//     old one kept.
//   - Files are 0600 and a file that others may read is refused: what is in it is
//     no secret any more.
//   - Every refusal says which certificate was refused, why, and what to do.
//
// It does not decide who may call what (rpc/serve), asks nobody over the network,
// and knows no revocation list: a certificate that must not be used any more ends
// with `certs rotate --ca`.
//
// The directory, $THECLAW_HOME/tls:
//
//	ca.pem      the authorities that are trusted, newest first
//	ca.key      the key of the newest; only where certificates are issued
//	NAME.pem    certificate and key of one identity: owner, registry, runner,
//	            runner-2, deliverer ...
package mtls
