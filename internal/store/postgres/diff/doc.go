// Package diff holds the test that both engines give the same answers: random
// sequences of calls of the storage contract are made to SQLite and to PostgreSQL, and
// every answer is compared. It owns no code.
//
// What cannot be equal is taken out first: uuids, hashes over times, and times. All
// else must be, to the last id, fate and count.
package diff
