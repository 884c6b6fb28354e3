// Package rpc dials a service of this project and adds what travels with each call: the
// capability token, the request id, the fence, the caller's identity. Services are served
// by rpc/serve; this half stays small, because the dispatch shim starts for each message
// and links nothing else.
//
// It promises:
//   - A token is written with mode 0600 in one step and read again when a service
//     rotated it: a call that was refused only for its old token is repeated once.
//   - A unary call has a deadline, ten seconds unless the caller sets another.
//   - UNAVAILABLE is retried only for the methods that the caller names as safe.
//   - A token never leaves the machine in plaintext: Unix sockets (to a server with
//     our own user id) or transport credentials, else Dial refuses.
//
// It does not decide who may call what (rpc/serve and its policy), and it does
// not know any service.
//
// The steps of a call (unary, or a stream before its first response):
//
//	       token from memory or file            UNAUTHENTICATED, file has another token
//	call ----------------------------> server --------------------------------+
//	                                     |  ^                                 |
//	                              answer |  +---- once, with the new token ---+
//	                                     v
//	                                  caller
package rpc
