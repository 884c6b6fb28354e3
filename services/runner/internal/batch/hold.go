package batch

// Hold keeps the batch from ending by itself until release is called: for work
// under the lease that is no event. False when the batch is ending already.
func (b *Batch) Hold() (release func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return nil, false
	}
	b.held++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held--
		b.notify()
	}, true
}

// unheld waits until nothing is held, and lets nothing more be.
func (b *Batch) unheld() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
	for b.held > 0 {
		progress := b.progress
		b.mu.Unlock()
		<-progress
		b.mu.Lock()
	}
}
