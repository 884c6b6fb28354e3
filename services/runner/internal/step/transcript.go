package step

import (
	"encoding/json"
	"fmt"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TranscribeKey is the key of the ith file of a turn that is made into text, from 1.
func TranscribeKey(i int) string { return fmt.Sprintf("transcribe:%d", i) }

// spoken names a file of a message in the journal.
type spoken struct {
	Event  int64  `json:"event"`
	SHA256 string `json:"sha256"`
	Path   string `json:"path"`
}

// Transcript is the journal row of a file of a message whose text is about to be made: by a provider or, where program is
// set, by a program, which may be run again. It is the row of an earlier claim where that began it.
func (l *Log) Transcript(event int64, sha256, path, by string, program bool) *registrypb.Step {
	for _, s := range l.transcripts {
		var of spoken
		if s.GetState() == registrypb.StepState_STEP_STATE_INTENT && json.Unmarshal([]byte(s.GetArguments()), &of) == nil && of.Event == event && of.SHA256 == sha256 {
			return s
		}
	}
	arguments, err := encode(spoken{event, sha256, path})
	if err != nil { // texts and numbers always encode
		arguments = []byte("{}")
	}
	s := &registrypb.Step{
		Seq: l.NextSeq(), Kind: registrypb.StepKind_STEP_KIND_TRANSCRIPT, Key: TranscribeKey(len(l.transcripts) + 1),
		State: registrypb.StepState_STEP_STATE_INTENT, Name: Clip(by, 256), Arguments: string(arguments),
	}
	if program {
		s.Class = registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT
	}
	return s
}

// Transcribed is the row with its end. The journal has how long the text is, or why there is none; the text is an event of
// the conversation.
func Transcribed(s *registrypb.Step, t *registrypb.Transcript, why string) *registrypb.Step {
	result, err := encode(struct {
		Bytes int    `json:"bytes"`
		Error string `json:"error,omitempty"`
	}{len(t.GetText()), ErrorText(why)})
	if err != nil { // texts and numbers always encode
		result = []byte("{}")
	}
	s = WithResult(s, registrypb.StepState_STEP_STATE_DONE, result)
	s.Transcript, s.IsError = t, t.GetError() != ""
	return s
}
