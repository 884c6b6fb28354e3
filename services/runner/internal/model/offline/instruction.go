package offline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/toolpolicy"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Bounds of what one message may ask for.
const (
	maxRounds = 1000
	maxWait   = time.Hour
	// echoRunes is how much of a message is echoed.
	echoRunes = 200
)

// output is the answer before it is streamed: text, or a call of the tool with a name.
type output struct {
	text, tool string
	arguments  json.RawMessage
}

// use is a call of a tool.
func use(tool string, with map[string]string) (output, error) {
	arguments, err := json.Marshal(with)
	if err != nil {
		return output{}, &model.Error{Class: model.BadResponse, Message: "offline: the command cannot be encoded", Err: err}
	}
	return output{tool: tool, arguments: arguments}, nil
}

func command(line, comment string) (output, error) {
	return use(Tool, map[string]string{"command": line, "comment": comment})
}

// call is the call with an id of its own.
func (o output) call(req model.Request) []model.ToolCall {
	return model.SealToolCalls(req, []model.ToolCall{{Name: o.tool, Arguments: o.arguments}})
}

// answer decides, and calls no tool that is not offered.
func answer(ctx context.Context, req model.Request) (output, error) {
	out, err := follow(ctx, req)
	if name := toolpolicy.Canonical(out.tool); out.tool != "" {
		n := slices.IndexFunc(req.Tools, func(t model.Tool) bool { return toolpolicy.Canonical(t.Name) == name })
		if n < 0 {
			return output{text: "offline: I cannot do that, the tool " + out.tool + " is not offered."}, nil
		}
		out.tool = req.Tools[n].Name // a presentation has a name of its own for it
	}
	return out, err
}

// follow reads the instruction of the last user message and how many rounds of
// tools it has had.
func follow(ctx context.Context, req model.Request) (output, error) {
	last := len(req.Messages) - 1
	for last >= 0 && req.Messages[last].Role != model.RoleUser {
		last--
	}
	if last < 0 {
		return output{text: Help}, nil
	}
	text := strings.TrimSpace(req.Messages[last].Text)
	results := slices.DeleteFunc(slices.Clone(req.Messages[last+1:]), func(m model.Message) bool { return m.Role != model.RoleTool })

	verb, rest, _ := strings.Cut(text, ":")
	rest = strings.TrimSpace(rest)
	hasRest := rest != ""
	switch verb = strings.ToLower(strings.TrimSpace(verb)); {
	case text == "" || verb == "help":
		return output{text: Help}, nil
	case verb == "recall" && !hasRest:
		return output{text: recall(req.Messages[:last])}, nil
	case verb == "say" && hasRest:
		return output{text: rest}, nil
	case verb == "fail" && hasRest:
		return fail(rest, max(req.Try, 1))
	case verb == "slow" && hasRest:
		return slow(ctx, rest)
	case verb == "run" && hasRest:
		if len(results) == 0 {
			return command(rest, "run as asked")
		}
		return output{text: "offline: " + report(results[len(results)-1].Text)}, nil
	case verb == "send" && hasRest:
		if len(results) == 0 {
			return use(SendTool, map[string]string{"text": rest})
		}
		return output{text: rest}, nil
	case verb == "remember" && hasRest:
		if len(results) == 0 {
			return command("printf '%s\\n' "+quote(rest)+" >> notes.md", "append to the notes")
		}
		return output{text: "offline: noted in notes.md: " + rest}, nil
	case verb == "call" && hasRest:
		return calls(text, results)
	case verb == "tools" && hasRest:
		return rounds(rest, len(results))
	}
	return output{text: "offline: " + short(text)}, nil
}

// calls makes the calls of a message, one in each round, and reports the last result. Each line
// is "call: NAME ARGUMENTS".
func calls(text string, results []model.Message) (output, error) {
	var list []output
	for line := range strings.Lines(text) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, arguments, _ := strings.Cut(strings.TrimSpace(rest), " ")
		switch arguments = strings.TrimSpace(arguments); {
		case strings.TrimSpace(line) == "":
			continue
		case !strings.EqualFold(strings.TrimSpace(verb), "call") || name == "":
			return output{text: "offline: call: every line must be `call: NAME ARGUMENTS`."}, nil
		case arguments == "":
			arguments = "{}"
		}
		list = append(list, output{tool: name, arguments: json.RawMessage(arguments)})
	}
	if len(results) < len(list) {
		return list[len(results)], nil
	}
	return output{text: "offline: " + report(results[len(results)-1].Text)}, nil
}

// recall lists what the user said before.
func recall(messages []model.Message) string {
	var b strings.Builder
	n := 0
	for _, m := range messages {
		if m.Role == model.RoleUser {
			n++
			fmt.Fprintf(&b, "\n%d. %s", n, short(m.Text))
		}
	}
	if n == 0 {
		return "offline: I see no earlier message of yours."
	}
	return fmt.Sprintf("offline: your earlier messages (%d):%s", n, b.String())
}

func rounds(rest string, done int) (output, error) {
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 || n > maxRounds {
		return output{text: fmt.Sprintf("offline: tools: must be a number from 0 to %d.", maxRounds)}, nil
	}
	if done < n {
		return command(fmt.Sprintf("echo round %d", done+1), "a round of tools")
	}
	return output{text: fmt.Sprintf("offline: %d tool rounds done.", n)}, nil
}

func slow(ctx context.Context, rest string) (output, error) {
	seconds, err := strconv.ParseFloat(rest, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxWait.Seconds()) {
		return output{text: fmt.Sprintf("offline: slow: must be seconds from 0 to %.0f.", maxWait.Seconds())}, nil
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return output{text: "offline: waited " + rest + " s."}, nil
	case <-ctx.Done():
		return output{}, ended(ctx.Err())
	}
}

var failures = map[string]model.Error{
	"rate-limit":  {Class: model.RateLimited, Status: 429, RetryAfter: time.Second},
	"unavailable": {Class: model.Unavailable, Status: 503},
	"unreachable": {Class: model.Unreachable},
	"cut":         {Class: model.CutStream},
	"bad":         {Class: model.BadResponse},
	"auth":        {Class: model.Auth, Status: 401},
	"config":      {Class: model.Config, Status: 404},
	"context":     {Class: model.ContextTooLong, Status: 400},
	"policy":      {Class: model.Policy, Status: 400},
}

// fail makes the error the message asks for; with a number only while the try
// is not beyond it, so that a drill can show a recovery.
func fail(rest string, try int) (output, error) {
	kind, times, limited := strings.Cut(rest, " ")
	if limited {
		n, err := strconv.Atoi(strings.TrimSpace(times))
		if err != nil || n < 0 {
			return output{text: "offline: fail: must be a kind and perhaps a number of tries."}, nil
		}
		if try > n {
			return output{text: fmt.Sprintf("offline: answered at try %d.", try)}, nil
		}
	}
	if kind == "panic" {
		panic("offline: a panic was asked for")
	}
	failure, ok := failures[kind]
	if !ok {
		return output{text: "offline: fail: does not know the kind " + short(kind) + "."}, nil
	}
	failure.Message = "offline: a failure was asked for"
	return output{}, &failure
}

// report is a tool result in words. Results are JSON with stdout, stderr and
// an exit code, or anything else, which is repeated as it is.
func report(result string) string {
	var r struct {
		Stdout   *string `json:"stdout"`
		Stderr   string  `json:"stderr"`
		ExitCode int     `json:"exitCode"`
		Exit     int     `json:"exit_code"`
	}
	if json.Unmarshal([]byte(result), &r) != nil || r.Stdout == nil {
		return "the tool answered:\n" + strings.TrimRight(result, "\n")
	}
	var b strings.Builder
	if code := r.ExitCode + r.Exit; code != 0 { // only one of them is ever set
		fmt.Fprintf(&b, "the command failed with exit code %d:", code)
	} else {
		b.WriteString("the command answered:")
	}
	quiet := true
	for _, part := range []string{*r.Stdout, r.Stderr} {
		if part = strings.TrimRight(part, "\n"); part != "" {
			b.WriteString("\n" + part)
			quiet = false
		}
	}
	if quiet {
		b.WriteString(" (it printed nothing)")
	}
	return b.String()
}

// quote makes one shell word of any text.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// short keeps an echo short.
func short(s string) string {
	runes := []rune(s)
	if len(runes) <= echoRunes {
		return s
	}
	return string(runes[:echoRunes]) + "..."
}
