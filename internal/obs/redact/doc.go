// Package redact owns what text looks like when it leaves the program: without
// secrets, on one line, and not too long.
//
// It promises that no value a [Redactor] was told of, in any form a request or an error
// carries it, and nothing that looks like a bearer token or an sk- key, is in what
// [Redactor.Redact] returns, whatever stands around it. It knows no log and no file.
package redact
