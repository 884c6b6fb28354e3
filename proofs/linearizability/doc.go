// Package linearizability proves that leases and pushes appear as if each call had
// happened at one instant between its call and its answer, over real gRPC and with kills
// of the registry: an interrupted call happened once or not at all. With STORE=postgres
// there are two registries over one database, and the database is killed too.
package linearizability
