package hub

import "sync"

// maxFed is the most news that is kept for one who follows; behind that he looks.
const maxFed = 256

// Feed is a Hub that also hands what is new to those who follow a topic for long, so
// that they need not look for what somebody here knows. The zero value is ready.
type Feed[T comparable, E any] struct {
	Hub[T]

	mu        sync.Mutex
	followers map[T]map[*Follower[T, E]]struct{}
}

// Follower is one who follows a topic until Close.
type Follower[T comparable, E any] struct {
	of    *Feed[T, E]
	topic T
	wake  chan struct{}
	news  []E
	look  bool // there may be more than the news
}

// Follow starts with a look.
func (f *Feed[T, E]) Follow(t T) *Follower[T, E] {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Follower[T, E]{of: f, topic: t, wake: make(chan struct{}, 1), look: true}
	if f.followers == nil {
		f.followers = map[T]map[*Follower[T, E]]struct{}{}
	}
	if f.followers[t] == nil {
		f.followers[t] = map[*Follower[T, E]]struct{}{}
	}
	f.followers[t][l] = struct{}{}
	return l
}

// Give wakes everybody who waits for t, and hands the news to those who follow it.
func (f *Feed[T, E]) Publish(t T, news []E) {
	f.mu.Lock()
	for l := range f.followers[t] {
		if l.news = append(l.news, news...); len(l.news) > maxFed {
			l.news, l.look = nil, true
		}
		l.notify()
	}
	f.mu.Unlock()
	f.Hub.Wake(t)
}

// Wake makes everybody look who waits for t or follows it.
func (f *Feed[T, E]) Wake(t T) {
	f.mu.Lock()
	for l := range f.followers[t] {
		l.look = true
		l.notify()
	}
	f.mu.Unlock()
	f.Hub.Wake(t)
}

// WakeAll is Wake of every topic.
func (f *Feed[T, E]) WakeAll() {
	f.mu.Lock()
	for _, all := range f.followers {
		for l := range all {
			l.look = true
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

// Take returns the news since the last time, in the order in which they were given; look
// tells that there may be others, which nobody gave.
func (l *Follower[T, E]) Take() (news []E, look bool) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	news, look = l.news, l.look
	l.news, l.look = nil, false
	return news, look
}

// Close ends it.
func (l *Follower[T, E]) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if all := l.of.followers[l.topic]; len(all) == 1 {
		delete(l.of.followers, l.topic)
	} else {
		delete(all, l)
	}
}
