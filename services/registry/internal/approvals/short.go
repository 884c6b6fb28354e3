package approvals

import (
	"fmt"
	"strings"

	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Short forms of ids, for people who type them: a prefix and the end of the id, which is random. The ids stay as they are:
// lists are in their order.
const (
	shortApproval = "ap-"
	shortQuestion = "q-"
	shortDigits   = 6
)

// shortOf is the short form of an id.
func shortOf(prefix, id string) string { return prefix + id[max(len(id)-shortDigits, 0):] }

// named returns the id that a short form stands for, or what was given when it is no short form or none has it. Those
// that have ended count as well: what a person reads in an old message is not taken for a newer one. Errors:
// INVALID_ARGUMENT when several have the form.
func named[R any](given, prefix string, list func(after string, limit int) ([]R, error), id func(R) string) (string, error) {
	end, ok := strings.CutPrefix(strings.ToLower(given), prefix)
	if !ok || len(end) != shortDigits {
		return given, nil
	}
	found := ""
	err := pages(list, id, func(r R) error {
		switch {
		case !strings.HasSuffix(id(r), end):
		case found != "":
			return wire.Bad(fmt.Sprintf("%s stands for several", prefix+end), "name one by its complete id: 'agentctl approvals list', 'agentctl questions list'")
		default:
			found = id(r)
		}
		return nil
	})
	if found == "" {
		found = given
	}
	return found, err
}
