// Package wire converts between the types of the store and the messages of the registry's
// services: states, events, turns, deliveries, pages, errors, and the fence of a call.
//
// It promises that whatever another program wrote can be sent, and that an unknown state
// becomes the unspecified one. It decides nothing and reads no data.
package wire

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

var fates = map[registryv1.Fate]store.Fate{
	registryv1.Fate_FATE_UNSPECIFIED:   store.FateNone,
	registryv1.Fate_FATE_REPLIED:       store.FateReplied,
	registryv1.Fate_FATE_SILENT:        store.FateSilent,
	registryv1.Fate_FATE_MERGED:        store.FateMerged,
	registryv1.Fate_FATE_ABORTED:       store.FateAborted,
	registryv1.Fate_FATE_DEAD:          store.FateDead,
	registryv1.Fate_FATE_NOT_A_MESSAGE: store.FateNotAMessage,
}

// Fate is a fate as an answer carries it.
func Fate(f store.Fate) registryv1.Fate {
	for k, v := range fates {
		if v == f {
			return k
		}
	}
	return registryv1.Fate_FATE_UNSPECIFIED
}

// ReadFate reads a fate off the wire.
func ReadFate(f registryv1.Fate) store.Fate { return fates[f] }

var stepKinds = map[string]registryv1.StepKind{
	store.StepModel: registryv1.StepKind_STEP_KIND_MODEL,
	store.StepTool:  registryv1.StepKind_STEP_KIND_TOOL,
	store.StepSteer: registryv1.StepKind_STEP_KIND_STEER,

	store.StepCompaction: registryv1.StepKind_STEP_KIND_COMPACTION,
	store.StepBlock:      registryv1.StepKind_STEP_KIND_BLOCK,
	store.StepTranscript: registryv1.StepKind_STEP_KIND_TRANSCRIPT,
}

var stepStates = map[string]registryv1.StepState{
	store.StepIntent:  registryv1.StepState_STEP_STATE_INTENT,
	store.StepDone:    registryv1.StepState_STEP_STATE_DONE,
	store.StepInDoubt: registryv1.StepState_STEP_STATE_IN_DOUBT,
}

var toolClasses = map[string]registryv1.ToolClass{
	store.ClassRead:       registryv1.ToolClass_TOOL_CLASS_READ,
	store.ClassIdempotent: registryv1.ToolClass_TOOL_CLASS_IDEMPOTENT,
	store.ClassEffect:     registryv1.ToolClass_TOOL_CLASS_EFFECT,
}

var turnStates = map[string]registryv1.TurnState{
	store.TurnQueued:  registryv1.TurnState_TURN_STATE_QUEUED,
	store.TurnClaimed: registryv1.TurnState_TURN_STATE_CLAIMED,
	store.TurnWaiting: registryv1.TurnState_TURN_STATE_WAITING,
	store.TurnDone:    registryv1.TurnState_TURN_STATE_DONE,
}

// keyOf is the stored word for a wire value.
func keyOf[E comparable](m map[string]E, e E) string {
	for k, v := range m {
		if v == e {
			return k
		}
	}
	return ""
}

// ReadSteps reads steps off the wire, and makes the content of the record event
// that each tool result and each transcript gets.
func ReadSteps(in []*registryv1.Step) ([]store.Step, map[string]string) {
	var out []store.Step
	records := map[string]string{}
	for _, p := range in {
		s := store.Step{
			Seq: int(p.GetSeq()), Kind: keyOf(stepKinds, p.GetKind()), Key: p.GetKey(), RequestSHA256: p.GetRequestSha256(),
			Class: keyOf(toolClasses, p.GetClass()), State: keyOf(stepStates, p.GetState()), Name: p.GetName(), CallID: p.GetCallId(),
			Arguments: p.GetArguments(), Result: p.GetResult(), Duration: p.GetDuration().AsDuration(), Asks: p.GetAsks(),
			Summary: p.GetSummary(), IsError: p.GetIsError(), External: p.GetExternal(),
			Usage: store.Usage{
				Input: p.GetUsage().GetInput(), Output: p.GetUsage().GetOutput(),
				CachedInput: p.GetUsage().GetCachedInput(), Reasoning: p.GetUsage().GetReasoning(),
				CacheWrite: p.GetUsage().GetCacheWrite(),
			},
		}
		switch t := p.GetTranscript(); {
		case s.State == store.StepIntent:
		case s.Kind == store.StepTool:
			records[s.Key] = toolcallContent(s)
		case s.Kind == store.StepTranscript && t != nil:
			records[s.Key] = thread.Transcript{Event: t.GetEventId(), SHA256: t.GetSha256(), Text: t.GetText(), Error: t.GetError()}.Content()
		}
		out = append(out, s)
	}
	return out, records
}

// toolcallContent is the content of a record/toolcall event. Arguments and result are
// JSON already, unless a model made them up.
func toolcallContent(s store.Step) string {
	b := thread.AppendString([]byte(`{"name":`), s.Name)
	b = appendJSON(append(b, `,"arguments":`...), []byte(s.Arguments))
	b = appendJSON(append(b, `,"result":`...), s.Result)
	return string(append(b, '}'))
}

func appendJSON(b, raw []byte) []byte {
	if json.Valid(raw) {
		return append(b, raw...)
	}
	return thread.AppendString(b, string(raw))
}

// Steps are steps as an answer carries them.
func Steps(in []store.Step) []*registryv1.Step {
	out := make([]*registryv1.Step, len(in))
	for i, s := range in {
		out[i] = &registryv1.Step{
			Seq: int32(s.Seq), Kind: stepKinds[s.Kind], Key: s.Key, RequestSha256: s.RequestSHA256, Class: toolClasses[s.Class],
			State: stepStates[s.State], Name: s.Name, CallId: s.CallID, Arguments: s.Arguments, Result: s.Result,
			Usage: ToUsage(s.Usage), Duration: durationpb.New(s.Duration), RecordedAt: stampOf(s.RecordedAt), Asks: s.Asks,
			Summary: s.Summary, IsError: s.IsError, External: s.External,
		}
	}
	return out
}

// ToUsage converts the usage of models.
func ToUsage(u store.Usage) *registryv1.Usage {
	return &registryv1.Usage{Input: u.Input, Output: u.Output, CachedInput: u.CachedInput, Reasoning: u.Reasoning, CacheWrite: u.CacheWrite}
}

// UsageSum is what some answers of a thread have cost.
func UsageSum(threadID string, s store.UsageSum) *registryv1.UsageSum {
	return &registryv1.UsageSum{ThreadId: threadID, Model: s.Model, Day: s.Day, RunId: s.Turn, Answers: s.Answers, Usage: ToUsage(s.Usage)}
}

func stampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Text is a stored text as an answer can carry it: another program may have written
// what is not UTF-8.
func Text(s string) string {
	text, _ := boundary.Text(s, 0)
	return text
}

// ReadFailedTry reads an attempt off the wire; nil for none.
func ReadFailedTry(f *registryv1.FailedTry) *store.FailedTry {
	if f == nil {
		return nil
	}
	return &store.FailedTry{
		Class: f.GetClass(), Error: f.GetError(), Wait: f.GetWait().AsDuration(), Counted: f.GetCounted(), Tries: int(f.GetTries()), Held: f.GetHeld(), N: int(f.GetN()),
	}
}

func attempts(in []store.Attempt) (out []*registryv1.Attempt) {
	for _, a := range in {
		out = append(out, &registryv1.Attempt{
			N: int32(a.N), At: stampOf(a.At), Class: Text(a.Class), Error: Text(a.Error), Counted: a.Counted, Wait: durationpb.New(a.Wait),
		})
	}
	return out
}

// Turn is a turn as an answer carries it.
func Turn(t store.Turn) *registryv1.Turn {
	out := &registryv1.Turn{
		AgentId: t.Agent, InboxId: t.InboxID, Key: t.Key, ThreadId: t.Thread, State: turnStates[t.State], Fate: Fate(t.Fate),
		Source: Text(t.Source), CrashAttempts: int32(t.CrashAttempts), ErrorAttempts: int32(t.ErrorAttempts), Error: Text(t.Error),
		InboundEventId: t.InboundID, ReplyEventId: t.ReplyID, ErrorEventId: t.ErrorEventID, QueuedAt: stampOf(t.QueuedAt),
		ClaimedAt: stampOf(t.ClaimedAt), FinishedAt: stampOf(t.FinishedAt), NextAt: stampOf(t.NextAt), Usage: ToUsage(t.Usage),
		Resolved: t.Resolved, Leader: t.Leader, Steps: Steps(t.Steps), Attempts: attempts(t.Attempts),
	}
	if o := t.Origin; o != nil {
		out.SessionKey, out.Account, out.ProviderId, out.BindingRevision = Text(o.Key), Text(o.Account), Text(o.ProviderID), o.Rev
		out.Command = Command(o)
	}
	if t.Delivery != nil {
		out.Delivery = Delivery(t.Agent, *t.Delivery)
	}
	return out
}
