package agentlog

import "time"

// Patient makes a book that writes when it is told to, however slow the machine is.
func Patient(b *Book) *Book {
	b.soon = time.Hour
	return b
}
