// Package redact cleans text that leaves the program: it removes secrets, keeps text on one
// line, and shortens it.
//
// It promises that no value that was registered with a [Redactor], in any form a request or
// an error carries it, and nothing that looks like a bearer token or an sk- key, is in what
// [Redactor.Redact] returns, whatever text surrounds it. It knows no log and no file.
package redact
