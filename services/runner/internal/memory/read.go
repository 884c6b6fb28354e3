package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/prompt"
)

const (
	// maxMessages is the most messages one digest reads, the newest: a thread that
	// was never digested may have a hundred thousand.
	maxMessages = 1000
	// maxRecords of a thread and maxThreads go into one digest of the agent's layer.
	maxRecords, maxThreads = 200, 64
)

// said reads the messages of the epoch after an event up to the job's; with a peer's file
// only that peer's own.
func (r Registry) said(ctx context.Context, j Job, after int64, peer string) (lines []compact.Line, last int64, err error) {
	after = max(after, j.EpochFrom)
	page, err := r.Threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: j.AgentID, ThreadId: j.ThreadID}, AfterId: after, Tail: true, Limit: maxMessages,
		Filter: fmt.Sprintf(thread.ShownFilter+" AND id <= %d", j.Upto),
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", j.ThreadID, err)
	}
	refused, err := r.refused(ctx, j, after)
	if err != nil {
		return nil, 0, err
	}
	records, err := Transcripts(ctx, r.Threads, &registrypb.ThreadRef{AgentId: j.AgentID, ThreadId: j.ThreadID}, page.GetEvents())
	if err != nil {
		return nil, 0, err
	}
	transcripts := TranscriptsOf(records)
	for _, e := range page.GetEvents() {
		if refused[e.GetId()] {
			last = e.GetId()
			continue
		}
		if peer != "" && peerFile(e.GetSource(), e.GetContent()) != peer {
			continue
		}
		lines = append(lines, compact.Line{Who: who(e), Text: prompt.Message(prompt.Event{Source: e.GetSource(), Content: e.GetContent(), Transcripts: transcripts[e.GetId()]}).Text})
		last = e.GetId()
	}
	return lines, last, nil
}

// maxTranscripts is the most transcripts that one digest or prompt reads.
const maxTranscripts = 200

// Transcripts reads the records of what was said in the files of messages; none where no message has such a file.
func Transcripts(ctx context.Context, threads Threads, at *registrypb.ThreadRef, messages []*registrypb.Event) ([]*registrypb.Event, error) {
	first := slices.IndexFunc(messages, func(e *registrypb.Event) bool { return thread.MayHaveVoice(e.GetContent()) })
	if first < 0 {
		return nil, nil
	}
	page, err := threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: at, AfterId: messages[first].GetId(), Tail: true, Limit: maxTranscripts, Filter: thread.TranscriptFilter,
	})
	if err != nil {
		return nil, fmt.Errorf("read transcripts of %s: %w", at.GetThreadId(), err)
	}
	return page.GetEvents(), nil
}

// TranscriptsOf are the transcripts among events, by the message whose files they are of; nil: there are none.
func TranscriptsOf(events []*registrypb.Event) (out map[int64][]thread.Transcript) {
	for _, e := range events {
		if e.GetType() != thread.TypeRecord || e.GetSubtype() != thread.SubtypeTranscript || e.GetSource() != thread.SourceSelf {
			continue
		}
		if t, ok := thread.ParseTranscript(e.GetContent()); ok {
			if out == nil {
				out = map[int64][]thread.Transcript{}
			}
			out[t.Event] = append(out[t.Event], t)
		}
	}
	return out
}

// refused are the messages whose words the provider of the model refuses: a digest with them
// in it would be refused too.
func (r Registry) refused(ctx context.Context, j Job, after int64) (map[int64]bool, error) {
	page, err := r.Threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: j.AgentID, ThreadId: j.ThreadID}, AfterId: after, Tail: true, Limit: maxMessages,
		Filter: "subtype = '" + thread.SubtypeError + "'",
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", j.ThreadID, err)
	}
	out := map[int64]bool{}
	for _, e := range page.GetEvents() {
		if f, ok := thread.ParseFailure(e.GetContent()); ok && f.Refused && e.GetSource() == thread.SourceSelf {
			out[f.Event] = true
		}
	}
	return out, nil
}

func who(e *registrypb.Event) string {
	if e.GetSource() == thread.SourceSelf {
		return "the agent"
	}
	t, _, err := route.Of(e.GetSource(), e.GetContent())
	if err != nil || t.PeerID == "" {
		return "somebody"
	}
	name, err := json.Marshal(t.PeerID) // the peer's choice: it stays one word
	if err != nil {
		return "somebody"
	}
	return string(name)
}

// peerFile is the memory file of the author; empty for the agent itself.
func peerFile(source, content string) string {
	if source == thread.SourceSelf {
		return ""
	}
	t, _, err := route.Of(source, content)
	if err != nil {
		return ""
	}
	return "memory/" + route.MemoryUserFile(t)
}

// ownThread reports whether only the peer in work writes in the thread.
func ownThread(j Job) bool {
	t, _, err := route.Of(j.Source, j.Content)
	return err == nil && route.Thread(route.PerPeer, t) == j.ThreadID
}

// done is what the agent did in the threads it has not looked at since: counts,
// and with memory.share also what those conversations were about.
func (r Registry) done(ctx context.Context, j Job) (lines []compact.Line, seen []*registrypb.ThreadRecords, err error) {
	for _, t := range j.Unseen[:min(len(j.Unseen), maxThreads)] {
		page, err := r.Threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
			Thread: &registrypb.ThreadRef{AgentId: j.AgentID, ThreadId: t.GetThreadId()}, AfterId: t.GetDigestedId(),
			Filter: "type = 'record'", Tail: true, Limit: maxRecords,
		})
		if fault.Is(err, fault.ThreadNotFound) { // it was removed since
			page, err = nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", t.GetThreadId(), err)
		}
		text, last := r.tally(page.GetEvents())
		if j.Config.GetShare() {
			file, err := r.Files.ReadAgentFile(ctx, &registrypb.ReadAgentFileRequest{AgentId: j.AgentID, Name: "memory/" + route.MemoryThreadFile(t.GetThreadId())})
			if err != nil {
				return nil, nil, fmt.Errorf("read memory of %s: %w", t.GetThreadId(), err)
			}
			if text := string(file.GetContent()); text != "" { // it is empty when an epoch has begun since
				lines = append(lines, compact.Line{Who: "a conversation", Text: text})
			}
		}
		if text != "" {
			lines = append(lines, compact.Line{Who: "records of a conversation", Text: text})
		}
		seen = append(seen, &registrypb.ThreadRecords{ThreadId: t.GetThreadId(), Compactions: t.GetCompactions(), DigestedId: max(last, t.GetDigestedId())})
	}
	return lines, seen, nil
}

// tally counts records without their words: a command, a result or an error can
// quote a peer, and so can the name of a tool that a model made up.
func (r Registry) tally(events []*registrypb.Event) (text string, last int64) {
	calls, failed := map[string]int{}, map[string]int{}
	var digests, errs int
	for _, e := range events {
		last = e.GetId()
		switch e.GetSubtype() {
		case thread.SubtypeToolcall:
			name, ok := r.outcome(e.GetContent())
			calls[name]++
			if !ok {
				failed[name]++
			}
		case thread.SubtypeDecision:
			digests++
		case thread.SubtypeError:
			errs++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		text += fmt.Sprintf("%d calls of %s, %d of them failed. ", calls[name], name, failed[name])
	}
	if errs > 0 {
		text += fmt.Sprintf("%d messages could not be answered. ", errs)
	}
	if digests > 0 {
		text += fmt.Sprintf("%d digests of the conversation. ", digests)
	}
	return text, last
}

// outcome reads a record of a tool call: a tool that is really ours, and whether
// its program ended well.
func (r Registry) outcome(content string) (name string, ok bool) {
	var c struct {
		Name   string `json:"name"`
		Result struct {
			ExitCode *int `json:"exitCode"`
		} `json:"result"`
	}
	err := json.Unmarshal([]byte(content), &c)
	name = "an unknown tool"
	if err == nil && r.Tools.Has(c.Name) {
		name = c.Name
	}
	return name, c.Result.ExitCode != nil && *c.Result.ExitCode == 0
}
