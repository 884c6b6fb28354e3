package turn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/store"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Entry is one line of a history. At is zero for what has no time of its own.
type Entry struct {
	At   time.Time
	Text string
	Mood Mood
}

// Mood chooses the color of an entry.
type Mood int

// The moods: what happened, what went well, what to be careful about, what failed.
const (
	Plain Mood = iota
	Good
	Careful
	Bad
)

// shownBytes of arguments and results go into a story; --json has them whole.
const shownBytes = 120

func (l Entry) render(e *command.Env) string {
	at := strings.Repeat(" ", len("15:04:05.000"))
	if !l.At.IsZero() {
		at = l.At.UTC().Format("15:04:05.000")
	}
	s := screen.Line(l.Text)
	switch l.Mood {
	case Good:
		s = screen.Paint(e, text.FgGreen, s)
	case Careful:
		s = screen.Paint(e, text.FgYellow, s)
	case Bad:
		s = screen.Paint(e, text.FgRed, s)
	case Plain:
	}
	return at + "  " + s
}

// teller collects a story.
type teller struct {
	lines    []Entry
	began    Begun
	together map[string][]string // by the key of a step, with which others it ran
	again    map[string]bool     // by the key of a step, whether it was run again after a crash
}

func (l *teller) say(at time.Time, mood Mood, format string, args ...any) {
	l.lines = append(l.lines, Entry{at, fmt.Sprintf(format, args...), mood})
}

// History describes a turn in plain words, in chronological order, with what its calls have begun and the deliveries of what
// it sent before its reply.
func History(t *registry.Turn, began Begun, earlier ...*registry.Delivery) []Entry {
	l := teller{began: began, together: together(t.GetSteps())}
	l.again = ranAgain(t, l.together)
	day := ""
	if q := when(t.GetQueuedAt()); !q.IsZero() {
		day = " on " + q.UTC().Format(time.DateOnly) + " (times are UTC)"
	}
	if t.GetAccount() != "" {
		l.say(time.Time{}, Plain, "received by %s (%s)", t.GetAccount(), "message "+cmp.Or(t.GetProviderId(), "without an id"))
	}
	rev := t.GetBindingRevision()
	if rev > 0 {
		l.say(time.Time{}, Plain, "routed to %s by revision %d of the bindings", t.GetSessionKey(), rev)
	}
	l.say(when(t.GetQueuedAt()), Plain, "pushed by %s as message %d of %s%s", t.GetSource(), t.GetInboxId(), t.GetAgentId(), day)
	l.say(time.Time{}, Plain, "run id %s", t.GetKey())
	if t.GetThreadId() != "" {
		l.say(time.Time{}, Plain, "belongs to the conversation %s", t.GetThreadId())
	}
	if rev == 0 && t.GetSessionKey() != "" {
		l.say(time.Time{}, Plain, "session %s, decided with its push", t.GetSessionKey())
	}
	if c := t.GetCommand(); c != nil {
		l.say(time.Time{}, Plain, "is the chat command /%s", strings.TrimSpace(c.GetName()+" "+screen.Line(c.GetArgs())))
	}
	if c := when(t.GetClaimedAt()); !c.IsZero() {
		l.say(c, Plain, "claimed by a runner, %s after it was pushed", gap(t.GetQueuedAt().AsTime(), c))
	}
	if lead := t.GetLeader(); lead != "" && t.GetFate() != registry.Fate_FATE_MERGED {
		l.say(time.Time{}, Plain, "joined the turn of %s", nameOf(lead))
	}
	if n := t.GetInboundEventId(); n > 0 {
		l.say(time.Time{}, Plain, "recorded in the conversation as event %d", n)
	}
	attempts := t.GetAttempts()
	for _, s := range t.GetSteps() {
		for len(attempts) > 0 && when(attempts[0].GetAt()).Before(when(s.GetRecordedAt())) {
			attempts = l.attempt(attempts)
		}
		l.step(s)
	}
	for len(attempts) > 0 {
		attempts = l.attempt(attempts)
	}
	if n := t.GetErrorAttempts(); n > 0 && len(t.GetAttempts()) == 0 { // of an earlier build
		l.say(time.Time{}, Careful, "%s failed%s", command.Count(n, "model try", "model tries"), because(t.GetError()))
	}
	if n := t.GetCrashAttempts(); n > 1 && len(t.GetAttempts()) == 0 {
		l.say(time.Time{}, Careful, "claimed %d times without progress: %s died while working on it", n, command.Count(n-1, "runner", "runners"))
	}
	l.end(t)
	if d := t.GetDelivery(); d != nil {
		earlier = append(earlier, d)
	}
	for len(earlier) > 0 {
		earlier = l.deliveries(earlier)
	}
	return l.lines
}

// attempt describes the first of attempts that ended without an answer, and returns the rest.
func (l *teller) attempt(list []*registry.Attempt) []*registry.Attempt {
	a := list[0]
	line := fmt.Sprintf("attempt %d failed%s", a.GetN(), because(store.Failure(a.GetClass(), a.GetError())))
	if a.GetClass() == store.ClassCrash {
		line = fmt.Sprintf("attempt %d ended%s", a.GetN(), because(a.GetError()))
	}
	if w := a.GetWait().AsDuration(); w > 0 {
		line += ", next try after " + short(w)
	}
	if !a.GetCounted() {
		line += " (costs no try)"
	}
	l.say(when(a.GetAt()), Careful, "%s", line)
	if rest := list[1:]; len(rest) > 0 && rest[0].GetN() > a.GetN()+1 {
		l.say(time.Time{}, Plain, "attempts %d to %d are not kept", a.GetN()+1, rest[0].GetN()-1)
	}
	return list[1:]
}

func (l *teller) step(s *registry.Step) {
	at := when(s.GetRecordedAt())
	ms := short(s.GetDuration().AsDuration())
	switch s.GetKind() {
	case registry.StepKind_STEP_KIND_MODEL:
		if s.GetClass() == registry.ToolClass_TOOL_CLASS_EFFECT {
			l.program(s, at, ms)
			return
		}
		u := s.GetUsage()
		line := fmt.Sprintf("%s: model %s answered in %s, %d tokens in, %d out", s.GetKey(), s.GetName(), ms, u.GetInput(), u.GetOutput())
		if u.GetCachedInput() > 0 {
			line += fmt.Sprintf(" (%d from its cache)", u.GetCachedInput())
		}
		l.say(at, Plain, "%s", line)
	case registry.StepKind_STEP_KIND_COMPACTION:
		u := s.GetUsage()
		l.say(at, Plain, "%s: memory digested in %s, %d tokens in, %d out", s.GetKey(), ms, u.GetInput(), u.GetOutput())
	case registry.StepKind_STEP_KIND_BLOCK:
		l.say(at, Plain, "%s: %s of the answer queued to be sent while the model was writing", s.GetKey(), command.Count(blockLength(s), "character", "characters"))
	case registry.StepKind_STEP_KIND_TOOL:
		l.tool(s, at, ms)
	case registry.StepKind_STEP_KIND_TRANSCRIPT:
		l.transcript(s, at, ms)
	case registry.StepKind_STEP_KIND_STEER:
		l.say(at, Plain, "%s: %s here, and %s answered with this one", s.GetKey(), joined(s), isOrAre(len(JoinedOf(s))))
	default:
		l.say(at, Plain, "%s: %s", s.GetKey(), command.Word(s.GetState(), "STEP_STATE_", "unknown"))
	}
}

// transcript describes a voice message that is made into text.
func (l *teller) transcript(s *registry.Step, at time.Time, ms string) {
	var of struct {
		Path string `json:"path"`
	}
	var r struct {
		Bytes int    `json:"bytes"`
		Error string `json:"error"`
	}
	_, _ = json.Unmarshal([]byte(s.GetArguments()), &of), json.Unmarshal(s.GetResult(), &r) // of what was erased, nothing
	what := s.GetKey() + ": transcript"
	if of.Path != "" {
		what += " of " + excerpt(of.Path)
	}
	switch {
	case s.GetState() == registry.StepState_STEP_STATE_INTENT:
		l.say(at, Careful, "%s: begun by %s, no result recorded yet", what, s.GetName())
	case s.GetIsError():
		l.say(at, Careful, "%s: %s failed in %s%s", what, s.GetName(), ms, because(r.Error))
	default:
		l.say(at, Plain, "%s: %s made %s of text in %s", what, s.GetName(), command.Count(r.Bytes, "byte", "bytes"), ms)
	}
}

// blockLength is how many characters of an answer a block holds.
func blockLength(s *registry.Step) int {
	var b struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(s.GetResult(), &b) // of what is not one, none
	return utf8.RuneCountInString(b.Text)
}

// program tells of a call of a program that runs its tools itself.
func (l *teller) program(s *registry.Step, at time.Time, ms string) {
	var r struct {
		Error string `json:"error"`
	}
	switch {
	case s.GetState() == registry.StepState_STEP_STATE_INTENT:
		l.say(at, Careful, "%s: program %s was called, no end recorded yet", s.GetKey(), s.GetName())
	case s.GetState() == registry.StepState_STEP_STATE_IN_DOUBT:
		l.say(at, Careful, "%s: program %s is in doubt. It was interrupted in the middle, and was not called again", s.GetKey(), s.GetName())
	case json.Unmarshal(s.GetResult(), &r) == nil && r.Error != "":
		l.say(at, Careful, "%s: program %s had no answer: %s", s.GetKey(), s.GetName(), excerpt(r.Error))
	default:
		l.say(at, Plain, "%s: program %s answered in %s; it reports no tokens", s.GetKey(), s.GetName(), ms)
	}
}

// toolOutcome reads the result of a program; another tool's is quoted.
func toolOutcome(result []byte) (string, Mood) {
	var r struct {
		ExitCode *int   `json:"exit_code"`
		Old      *int   `json:"exitCode"`
		Error    string `json:"error"`
	}
	if json.Unmarshal(result, &r) != nil {
		return "answered " + excerpt(string(result)), Plain
	}
	code := r.ExitCode
	if code == nil {
		code = r.Old
	}
	switch {
	case r.Error != "":
		return "failed: " + excerpt(r.Error), Careful
	case code == nil:
		return "answered " + excerpt(string(result)), Plain
	case *code != 0:
		return fmt.Sprintf("exit code %d", *code), Careful
	}
	return "ok", Plain
}

func (l *teller) end(t *registry.Turn) {
	at := when(t.GetFinishedAt())
	after := ""
	if !at.IsZero() && t.GetQueuedAt() != nil {
		after = ", " + gap(t.GetQueuedAt().AsTime(), at) + " after it was pushed"
	}
	switch t.GetFate() {
	case registry.Fate_FATE_REPLIED:
		l.say(at, Good, "replied: event %d of the conversation%s", t.GetReplyEventId(), after)
	case registry.Fate_FATE_SILENT:
		if SentMessages(t) > 0 {
			l.say(at, Good, "nothing was left to say at the end%s", after)
			return
		}
		l.say(at, Good, "the agent chose to say nothing%s", after)
	case registry.Fate_FATE_MERGED:
		l.say(at, Good, "answered together with %s%s", nameOf(t.GetLeader()), after)
		l.say(time.Time{}, Plain, "its reply: agentctl explain %s %s", t.GetAgentId(), t.GetLeader())
	case registry.Fate_FATE_ABORTED:
		l.say(at, Bad, "aborted%s%s", because(t.GetError()), after)
	case registry.Fate_FATE_NOT_A_MESSAGE:
		l.say(at, Plain, "not a message: acknowledged without a turn%s", after)
	case registry.Fate_FATE_DEAD:
		l.say(at, Bad, "dead%s%s", because(t.GetError()), after)
		switch {
		case t.GetResolved() != "":
			l.say(time.Time{}, Plain, "taken off the dead letters: %s", t.GetResolved())
		default:
			l.say(time.Time{}, Plain, "to try again: agentctl dlq retry %s t:%d", t.GetAgentId(), t.GetInboxId())
		}
	case registry.Fate_FATE_UNSPECIFIED:
		l.open(t)
	}
}

// open tells what a message without a fate is waiting for.
func (l *teller) open(t *registry.Turn) {
	switch t.GetState() {
	case registry.TurnState_TURN_STATE_QUEUED:
		l.say(time.Time{}, Careful, "waiting for a runner; is the agent started? ('agentctl status %s')", t.GetAgentId())
	case registry.TurnState_TURN_STATE_CLAIMED:
		l.say(time.Time{}, Careful, "under way. If the runner dies now, a model answer that was not recorded is asked for again (window C)")
	case registry.TurnState_TURN_STATE_WAITING:
		if what := message.Waiting(t, time.Now()); t.GetError() != "" {
			l.say(time.Time{}, Careful, "%s", what)
			return
		}
		l.say(time.Time{}, Careful, "waiting for the next try%s", until(when(t.GetNextAt())))
	default:
		l.say(time.Time{}, Careful, "its state is not known to this program")
	}
}

// deliveries describes the first of deliveries, together with those after it that were sent without trouble over the same
// channel, and returns the rest.
func (l *teller) deliveries(list []*registry.Delivery) []*registry.Delivery {
	first, ids := list[0], []string{}
	for _, d := range list {
		if d.GetState() != registry.DeliveryState_DELIVERY_STATE_SENT || d.GetChannel() != first.GetChannel() || d.GetAttempts() > 1 || d.GetMaybeDuplicate() || d.GetProviderId() == "" {
			break
		}
		ids = append(ids, d.GetProviderId())
	}
	if len(ids) < 2 {
		l.delivery(first)
		return list[1:]
	}
	l.say(when(list[len(ids)-1].GetUpdatedAt()), Good, "delivery by %s: sent as %s", first.GetChannel(), strings.Join(ids, ", "))
	return list[len(ids):]
}

func (l *teller) delivery(d *registry.Delivery) {
	at := when(d.GetUpdatedAt())
	name := "delivery"
	if d.GetChannel() != "" {
		name += " by " + d.GetChannel()
	}
	tries, id := command.Count(d.GetAttempts(), "try", "tries"), ""
	if d.GetProviderId() != "" {
		id = " as " + d.GetProviderId()
	}
	if n := d.GetParts(); n > 0 && d.GetState() != registry.DeliveryState_DELIVERY_STATE_SENT {
		l.say(time.Time{}, Plain, "%s: %s sent%s", name, command.Count(n, "part", "parts"), id)
		name = "the rest of it"
	}
	switch d.GetState() {
	case registry.DeliveryState_DELIVERY_STATE_PENDING:
		if d.GetMaybeDuplicate() {
			l.say(at, Careful, "%s: not known whether it was sent, %s so far%s%s", name, tries, because(d.GetError()), until(when(d.GetNextAt())))
			l.say(time.Time{}, Careful, "an earlier send may have left, so the next one carries the flag maybe_duplicate (window B)")
			return
		}
		l.say(at, Careful, "%s: not sent yet, %s so far%s%s", name, tries, because(d.GetError()), until(when(d.GetNextAt())))
	case registry.DeliveryState_DELIVERY_STATE_SENDING:
		l.say(at, Careful, "%s: a send may be under way, %s so far. If the deliverer dies now, it may leave twice (window B)", name, tries)
	case registry.DeliveryState_DELIVERY_STATE_SENT:
		if d.GetAttempts() > 0 {
			id += " after " + tries
		}
		l.say(at, Good, "%s: sent%s", name, id)
	case registry.DeliveryState_DELIVERY_STATE_DEAD:
		l.say(at, Bad, "%s: dead after %s%s", name, tries, because(d.GetError()))
		if d.GetMaybeDuplicate() {
			l.say(time.Time{}, Careful, "a try may have left all the same: ask the receiver before it is tried again")
		}
		l.say(time.Time{}, Plain, "to try again: agentctl dlq retry %s d:%s:%d", d.GetAgentId(), d.GetThreadId(), d.GetEventId())
	case registry.DeliveryState_DELIVERY_STATE_SKIPPED:
		l.say(at, Plain, "%s: not sent%s", name, because(d.GetError()))
	default:
		return
	}
	if d.GetMaybeDuplicate() && d.GetState() != registry.DeliveryState_DELIVERY_STATE_DEAD {
		l.say(time.Time{}, Careful, "maybe sent twice: an earlier send may have left before its record was on disk (window B)")
	}
}

func gap(from, to time.Time) string { return short(to.Sub(from)) }

func because(cause string) string {
	if cause = strings.TrimSpace(cause); cause == "" {
		return ""
	}
	return ": " + excerpt(cause)
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", next try at " + t.UTC().Format("15:04:05")
}

func excerpt(s string) string {
	s = screen.Line(strings.TrimSpace(s))
	return text.Snip(s, shownBytes, "…")
}
