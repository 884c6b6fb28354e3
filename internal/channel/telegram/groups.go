package telegram

import "strings"

// groupsName is the name under which groups are kept, groupsSize the most bytes of them.
const (
	groupsName = "groups"
	groupsSize = 4 << 10
)

// groups are the groups that became supergroups, which have another id: a conversation keeps the id
// that it had first, with its settings and its session. One that became a supergroup within seconds
// before a crash may be a conversation of its own.
type groups struct {
	first map[string]string // by the id now
	order []string          // of the ids now, the last last
	keep  func(value string)
}

// loadGroups reads what was kept before: lines of an id and the first one.
func loadGroups(kept string, keep func(string)) *groups {
	g := &groups{first: map[string]string{}, keep: keep}
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

// moved notes that a group has another id now. The oldest is forgotten when there are too many.
func (g *groups) moved(from, to string) {
	if _, ok := g.first[to]; ok || from == to {
		return
	}
	g.first[to], g.order = g.id(from), append(g.order, to)
	for {
		var b strings.Builder
		for _, now := range g.order {
			b.WriteString(now + " " + g.first[now] + "\n")
		}
		if b.Len() <= groupsSize {
			g.keep(b.String())
			return
		}
		delete(g.first, g.order[0])
		g.order = g.order[1:]
	}
}
