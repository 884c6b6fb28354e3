// Package sqlite keeps the storage contract in one SQLite database per thread,
// in the directory format of the external thread tool.
//
// It owns which databases are open: they are opened on demand, shared, closed
// after a minute of rest or when more than a bound are open, and always in the
// background. What one database does is package db; what the operations mean is
// package store; here they become statements.
//
//	Engine --get--> handle (open, counted) --Do/View--> db.DB
//	        <-put--
//	janitor: closes handles at rest
//
// A database that broke (I/O error, corruption) is closed at its last put and
// opened afresh for the next caller, who then sees what is really on disk.
// Registry-wide tables (leases, what is known of inboxes) are in home.go.
package sqlite
