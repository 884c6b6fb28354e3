package step_test

import (
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// S3-103: each file of a turn has one row, which a later claim goes on with where it has no end, and which never has the text.
func TestTranscript(t *testing.T) {
	var log step.Log
	first := log.Transcript(3, "aa", "inbox/aa/v.ogg", "ears/whisper-1", false)
	if first.GetKey() != "transcribe:1" || first.GetSeq() != 1 || first.GetClass() != registrypb.ToolClass_TOOL_CLASS_UNSPECIFIED || first.GetState() != registrypb.StepState_STEP_STATE_INTENT {
		t.Errorf("the first row is %v", first)
	}
	log.Add(first)
	if again := log.Transcript(3, "aa", "inbox/aa/v.ogg", "other/model", true); again != first {
		t.Errorf("after a crash the row is %v", again)
	}
	for n, of := range []struct {
		event int64
		hash  string
	}{{4, "aa"}, {3, "bb"}} {
		other := log.Transcript(of.event, of.hash, "x", "sh", true)
		if other.GetKey() != step.TranscribeKey(n+2) || other.GetClass() != registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT {
			t.Errorf("another file has %v", other)
		}
		log.Add(other)
	}
	done := step.Transcribed(first, &registrypb.Transcript{EventId: 3, Sha256: "aa", Text: "xyzzy"}, "")
	if string(done.GetResult()) != `{"bytes":5}` || done.GetIsError() || done.GetState() != registrypb.StepState_STEP_STATE_DONE || done.GetTranscript().GetText() != "xyzzy" || first.GetTranscript() != nil {
		t.Errorf("the end is %v", done)
	}
	log.Add(done)
	if next := log.Transcript(3, "aa", "x", "sh", false); next.GetKey() != "transcribe:4" {
		t.Errorf("a row that has its end is used again: %v", next)
	}
	failed := step.Transcribed(first, &registrypb.Transcript{EventId: 3, Sha256: "aa", Error: "key refused"}, strings.Repeat("why\xff", 2000))
	if !failed.GetIsError() || len(failed.GetResult()) > 5000 || !strings.HasPrefix(string(failed.GetResult()), `{"bytes":0,"error":"why`) {
		t.Errorf("a failure is %d bytes: %.80s", len(failed.GetResult()), failed.GetResult())
	}
}
