package hub

import "sync"

// maxQueued is the most events queued for one follower; beyond that it must read.
const maxQueued = 256

// Feed is a Hub that also queues new events for the followers of a topic, so that they
// need not read what was committed here. The zero value is ready.
type Feed[T comparable, E any] struct {
	Hub[T]

	mu        sync.Mutex
	followers map[T]map[*Follower[T, E]]struct{}
}

// Follower subscribes to a topic until Close.
type Follower[T comparable, E any] struct {
	of    *Feed[T, E]
	topic T
	wake  chan struct{}
	news  []E
	read  bool // there may be more than news
}

// Follow adds a follower, whose first Take asks it to read.
func (f *Feed[T, E]) Follow(t T) *Follower[T, E] {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Follower[T, E]{of: f, topic: t, wake: make(chan struct{}, 1), read: true}
	if f.followers == nil {
		f.followers = map[T]map[*Follower[T, E]]struct{}{}
	}
	if f.followers[t] == nil {
		f.followers[t] = map[*Follower[T, E]]struct{}{}
	}
	f.followers[t][l] = struct{}{}
	return l
}

// Publish wakes the waiters of t and queues the news for its followers.
func (f *Feed[T, E]) Publish(t T, news []E) {
	f.mu.Lock()
	for l := range f.followers[t] {
		if l.news = append(l.news, news...); len(l.news) > maxQueued {
			l.news, l.read = nil, true
		}
		l.notify()
	}
	f.mu.Unlock()
	f.Hub.Wake(t)
}

// Wake makes the waiters and followers of t read.
func (f *Feed[T, E]) Wake(t T) {
	f.mu.Lock()
	for l := range f.followers[t] {
		l.read = true
		l.notify()
	}
	f.mu.Unlock()
	f.Hub.Wake(t)
}

// WakeAll is Wake for every topic.
func (f *Feed[T, E]) WakeAll() {
	f.mu.Lock()
	for _, all := range f.followers {
		for l := range all {
			l.read = true
			l.notify()
		}
	}
	f.mu.Unlock()
	f.Hub.WakeAll()
}

func (l *Follower[T, E]) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Woken receives when there is something to take.
func (l *Follower[T, E]) Woken() <-chan struct{} { return l.wake }

// Take returns the news since the last time, in the order in which they were published;
// read reports that there may be others, which were not published here.
func (l *Follower[T, E]) Take() (news []E, read bool) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	news, read = l.news, l.read
	l.news, l.read = nil, false
	return news, read
}

// Close ends the subscription.
func (l *Follower[T, E]) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if all := l.of.followers[l.topic]; len(all) == 1 {
		delete(l.of.followers, l.topic)
	} else {
		delete(all, l)
	}
}
