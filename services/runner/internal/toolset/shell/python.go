package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Python runs code (S3-53), as the tool for commands runs a command line: an approval shows and
// binds the complete code. The code is a file in a temporary directory of its own.
type Python struct{ Tool *Tool }

// pythonTime is how long code may run whose call does not say it.
const pythonTime = time.Minute

// Spec implements [toolset.Tool].
func (Python) Spec() toolset.Spec {
	return toolset.Spec{
		Name: "python", Description: "Runs Python 3 code in the working directory and returns its stdout, stderr and exit code.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"code":{"type":"string","description":"the program"},` +
			`"timeout":{"type":"number","description":"milliseconds until it is killed; 60000 unless given, at most 3600000"}},` +
			`"required":["code"]}`),
		Needs: toolset.Program, Summary: toolset.Summarize("code"),
	}
}

// Class implements [toolset.Tool].
func (p Python) Class(c toolset.Call) toolset.Class { return class(c, p.parse) }

// Asks implements [toolset.Asker].
func (p Python) Asks(c toolset.Call) bool { return asks(c, p.parse) }

// Run implements [toolset.Tool].
func (p Python) Run(ctx context.Context, c toolset.Call) toolset.Result {
	code, err := p.parse(c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	return p.Tool.execute(ctx, c, code)
}

// parse reads the arguments of a call. No allow list has the line that runs code.
func (p Python) parse(c toolset.Call) (program, error) {
	line, code, timeout, err := python(c.Args)
	if err != nil {
		return program{}, err
	}
	of := program{shown: code, text: line, shorten: true}
	of.command = p.Tool.command(c, of, timeout)
	err = p.Tool.confine(c, &of, networkSetting, c.Place.Config.GetNetworkHosts())
	return of, err
}

// python is the command line for a call, with the code in it.
func python(args json.RawMessage) (line, code string, timeout time.Duration, err error) {
	var a struct {
		Code    string   `json:"code"`
		Timeout *float64 `json:"timeout"`
	}
	switch most := float64(sandbox.MaxTimeout.Milliseconds()); {
	case len(args) > toolset.MaxArguments:
		return "", "", 0, errTooLarge
	case json.Unmarshal(args, &a) != nil:
		return "", "", 0, errors.New("the arguments are not understood: code is a string, timeout is a number")
	case strings.TrimSpace(a.Code) == "":
		return "", "", 0, errors.New("code is missing")
	case a.Timeout != nil && !(*a.Timeout > 0 && *a.Timeout <= most):
		return "", "", 0, fmt.Errorf("timeout must be above 0 and at most %.0f milliseconds", most)
	}
	timeout = pythonTime
	if a.Timeout != nil {
		timeout = time.Duration(*a.Timeout * float64(time.Millisecond))
	}
	// The end of the text is a line that the code does not have: it depends on all of the code.
	sum := sha256.Sum256([]byte(a.Code))
	end := "END_" + hex.EncodeToString(sum[:8])
	// The directory for temporary files may be one that stays, and that other calls have as well.
	return `d="$(mktemp -d)" && trap 'rm -rf "$d"' EXIT || exit 1` + "\n" + `f="$d/code.py"` + "\ncat >\"$f\" <<'" + end + "' || exit 1\n" + a.Code + "\n" + end + "\n" +
		`python3 "$f"`, a.Code, timeout, nil
}
