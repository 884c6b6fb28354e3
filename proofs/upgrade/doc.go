// Package upgrade proves that this build continues what an earlier build left: homes and
// PostgreSQL databases of which the earlier build was killed at each labeled instant in the
// processing of a message and a delivery (fault.Labels). Each message that it had accepted
// is answered exactly once.
//
// A fixture is testdata/BUILD/STORE/LABEL.tar.gz: record.json and either the files below
// home/ or dump.sql. TestWrite makes the fixtures (`make fixtures`); they are only ever
// added, never made again for an existing build.
//
// TestGather does with an earlier build what the refusal of several databases instructs.
package upgrade
