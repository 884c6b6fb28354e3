package telegram

import "strings"

// groupsName is the name under which groups are kept, groupsSize the most bytes of them.
const (
	groupsName = "groups"
	groupsSize = 4 << 10
)

// groups are the groups that became supergroups, which have another id: a conversation keeps the id
// that it had first, with its settings and its session.
type groups struct {
	first map[string]string // by the id now
	order []string          // of the ids now, the last last
}

// loadGroups reads what was kept before: lines of an id and the first one.
func loadGroups(kept string) *groups {
	g := &groups{first: map[string]string{}}
	for line := range strings.Lines(kept) {
		if now, first, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			g.first[now], g.order = first, append(g.order, now)
		}
	}
	return g
}

// id returns the id that a conversation has here.
func (g *groups) id(now string) string {
	if first, ok := g.first[now]; ok {
		return first
	}
	return now
}

// moved notes that a group has another id now, and returns what is to be kept; false: that was known. The oldest is
// forgotten when there are too many.
func (g *groups) moved(from, to string) (kept string, ok bool) {
	if _, ok := g.first[to]; ok || from == to {
		return "", false
	}
	g.first[to], g.order = g.id(from), append(g.order, to)
	for {
		var b strings.Builder
		for _, now := range g.order {
			b.WriteString(now + " " + g.first[now] + "\n")
		}
		if b.Len() <= groupsSize {
			return b.String(), true
		}
		delete(g.first, g.order[0])
		g.order = g.order[1:]
	}
}
