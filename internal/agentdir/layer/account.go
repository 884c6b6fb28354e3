package layer

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/channel/catalog"
)

// Bounds of the settings of accounts.
const (
	// leastText is the least max_chars, as that of deliver.max_chars: below it a fence and its pair do not fit.
	leastText = 64
	// maxText is the most characters of a message where the type of the account states no limit.
	maxText = 100_000
	// maxRate is the most messages a minute.
	maxRate = 100_000
	// maxMediaMiB is the most MiB of an attachment, which package store bounds as well.
	maxMediaMiB = 50
	// maxCatchUp is as far as receivers go back.
	maxCatchUp = 7 * 24 * time.Hour
	// maxDMHistory is the most messages of people of a direct conversation.
	maxDMHistory = 1000
	// dmHistory is that number where an account states none.
	dmHistory = 50
	// maxDMs is how many direct conversations have a limit of their own.
	maxDMs = 1000
)

// newAccount returns an account with the defaults.
func newAccount(name string) Account {
	return Account{
		Name: name, Enabled: true, DM: "pairing", Groups: AccountGroups{Mode: "mention"},
		Rate: 60, MediaMaxMiB: 20, CatchUp: 24 * time.Hour,
	}
}

// outOfBounds reports the first number of an account that is not within its bounds; false: all are.
func (l *layer) outOfBounds(full string, a Account, at map[string]ast.Node) bool {
	t, _ := catalog.Find(a.Type)
	longest := maxText
	if t.MaxText > 0 {
		longest = t.MaxText
	}
	for _, n := range []struct {
		key              string
		value, low, high int
	}{
		{"max_chars", a.MaxChars, leastText, longest},
		{"rate", a.Rate, 0, maxRate},
		{"media_max_mib", a.MediaMaxMiB, 0, maxMediaMiB},
		{"dm_history_limit", a.DMHistoryLimit, 1, maxDMHistory},
	} {
		if at[n.key] != nil && (n.value < n.low || n.value > n.high) {
			l.fail(at[n.key], full, fmt.Sprintf("%s: %s: %d is not between %d and %d", full, n.key, n.value, n.low, n.high))
			return true
		}
	}
	if a.CatchUp < 0 || a.CatchUp > maxCatchUp {
		l.fail(at["catchup"], full, fmt.Sprintf("%s: catchup: %s is not between 0s and %s", full, config.Duration(a.CatchUp), config.Duration(maxCatchUp)))
		return true
	}
	return false
}

// accountDMs reads what direct conversations of an account have of their own, by the id of the person.
func (l *layer) accountDMs(kv *ast.MappingValueNode, full string, a *Account) {
	if kv.Value.Type() == ast.NullType {
		return
	}
	entries, ok := yamldoc.Pairs(kv.Value)
	if !ok || len(entries) > maxDMs {
		l.fail(orKey(kv), full, fmt.Sprintf("%s wants at most %d ids of people, each with history_limit below it", full, maxDMs))
		return
	}
	a.DMs = make(map[string]int, len(entries))
	for _, entry := range entries {
		id, n, at := written(entry), 0, map[string]ast.Node{}
		if strings.TrimSpace(id) == "" || config.IsLine(id) != "" {
			l.fail(entry, full, fmt.Sprintf("%s: %q is not the id of a person", full, config.Clip(id)))
			continue
		}
		before := len(*l.problems)
		l.object(entry.Value, full+"."+id, map[string]any{"history_limit": &n}, at)
		if len(*l.problems) == before && (n < 1 || n > maxDMHistory) {
			l.fail(orElse(at["history_limit"], entry), full, fmt.Sprintf("%s.%s: history_limit: %d is not between 1 and %d", full, id, n, maxDMHistory))
		}
		a.DMs[id] = n
	}
}

// HistoryOf is how many earlier messages of people a direct conversation with a person has in the prompt at most. set
// means that the settings of the account state it: then it counts in the place of context.recent_messages.
func (a Account) HistoryOf(peer string) (turns int, set bool) {
	if n, ok := a.DMs[peer]; ok {
		return n, true
	}
	if a.DMHistoryLimit > 0 {
		return a.DMHistoryLimit, true
	}
	return dmHistory, false
}
