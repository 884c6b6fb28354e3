// Package linearizability proves that leases and pushes look as if each call
// had happened at one instant between its call and its answer, over real gRPC and
// over kills of the registry: what was cut off has happened once or not at all. With
// STORE=postgres there are two registries over one database, and that is killed too.
package linearizability
