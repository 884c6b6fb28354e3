// Package drivertest is the suite every network driver passes, each in its own
// wire format, against the scripted provider of package modeltest: real HTTP
// and server-sent events on loopback.
//
// It promises that a driver which passes streams text and reasoning as they
// arrive, puts tool calls and usage together over rounds, gives each failure
// the class of package model, takes no stream that was cut, wherever that was,
// for an answer, and closes the connection when its caller does.
//
// It does not test what only one format has; that is in the driver's tests.
package drivertest
