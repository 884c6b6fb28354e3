package state

// Damage notes that a thread's database is damaged. The problem stands, whatever
// else is read, until the registry starts again: only then can the file be
// another one.
func (a *Agent) Damage(thread, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.damaged == nil {
		a.damaged = map[string]string{}
	}
	a.damaged[thread] = problem
}

// Damaged reports whether a database of the agent is damaged.
func (a *Agent) Damaged() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.damaged) > 0
}
