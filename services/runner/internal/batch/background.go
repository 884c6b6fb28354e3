package batch

// BeginBackground keeps the batch from ending when it is idle until end is called: for
// background work that a person waits for, which runs under the lease and answers no
// event. False when the batch is ending already. See following for the work of turns.
func (b *Batch) BeginBackground() (end func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noBackground {
		return nil, false
	}
	b.background++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.background--
		b.notify()
	}, true
}

// Hold is BeginBackground for work that does not make room for other agents before it is over.
// stop is closed when the batch is to end all the same: the work then ends at once.
func (b *Batch) Hold() (stop <-chan struct{}, end func(), ok bool) {
	release, ok := b.BeginBackground()
	if !ok {
		return nil, nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	return b.stop.Done(), func() {
		b.mu.Lock()
		b.held--
		b.mu.Unlock()
		release()
	}, true
}

// endBackground lets no more background work begin and waits until there is none.
func (b *Batch) endBackground() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noBackground = true
	for b.background > 0 {
		progress := b.progress
		b.mu.Unlock()
		<-progress
		b.mu.Lock()
	}
}
