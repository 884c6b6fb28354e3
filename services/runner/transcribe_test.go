package runner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	server "github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// spoken is a file as the content of a message describes it.
type spoken struct {
	Type  string `json:"type"`
	MIME  string `json:"mime,omitempty"`
	Name  string `json:"name"`
	Size  int    `json:"size,omitempty"`
	Media string `json:"media,omitempty"`
	Error string `json:"error,omitempty"`
}

// store stores the data of a file of an agent.
func store(t *testing.T, to registrypb.MediaServiceClient, agent, kind, name, data string) spoken {
	t.Helper()
	sum := sha256.Sum256([]byte(data))
	ref := hex.EncodeToString(sum[:])
	mime := "audio/ogg"
	if kind == "image" {
		mime = "image/png"
	}
	out, err := to.WriteMedia(t.Context())
	if err == nil {
		err = out.Send(&registrypb.WriteMediaRequest{AgentId: agent, Media: &registrypb.Media{Sha256: ref, Mime: mime, Name: name, Size: int64(len(data))}, Data: []byte(data)})
	}
	if err == nil {
		_, err = out.CloseAndRecv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return spoken{Type: kind, MIME: mime, Name: name, Size: len(data), Media: "sha256:" + ref}
}

// message is the content of a message of bob with files.
func message(t *testing.T, text string, files ...spoken) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"text": text, "attachments": files,
		"reply_context": map[string]string{"channel_type": "telegram", "channel_id": "main", "peer_id": "bob", "session_id": "bob"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// listening is a world with a model, work, and an endpoint for transcripts, ears, which knows the model whisper-1.
func listening(t *testing.T, key string, script *modeltest.Server, heard ...modeltest.Step) (*server.World, *modeltest.Transcriptions) {
	t.Helper()
	ears := modeltest.NewTranscriptions(t, modeltest.Key, "whisper-1", heard...)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("default: work\nproviders:\n  work: {base_url: '%s', models: [m1]}\n  ears: {base_url: '%s', api_key: 'env:EARS'}\n", script.URL(), ears.URL())
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.Start(t, server.Options{
		Home: home, Env: map[string]string{"EARS": key}, Runner: runner.Config{Backoff: time.Millisecond, Probe: 10 * time.Millisecond},
	}), ears
}

// push puts a message into the inbox of a1.
func push(t *testing.T, w *server.World, content string) int64 {
	t.Helper()
	r, err := w.Threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registrypb.NewEvent{{Source: server.Peer("bob"), Type: "message", Content: content}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetEventIds()[0]
}

// transcribed are the keys and states of the transcripts in the journal of a turn.
func transcribed(turn *registrypb.Turn) (out []string) {
	for _, s := range turn.GetSteps() {
		if s.GetKind() == registrypb.StepKind_STEP_KIND_TRANSCRIPT {
			out = append(out, fmt.Sprint(s.GetKey(), " ", s.GetName(), " ", s.GetState() == registrypb.StepState_STEP_STATE_DONE, " ", s.GetIsError()))
		}
	}
	return out
}

const transcribeEars = "media: {transcribe: {provider: ears}}"

// S3-103: the model reads what was said in a voice message, marked and without control characters, in its turn and in later
// ones, in the digest and in what BuildContext shows; each file is paid for once.
func TestVoiceMessages(t *testing.T) {
	script := modeltest.New(t, modeltest.Step{Repeat: true, Answer: func(c modeltest.Chat) modeltest.Step {
		if c.WantsDigest() {
			return modeltest.Say("a digest")
		}
		return modeltest.Say("fine")
	}})
	w, ears := listening(t, modeltest.Key, script,
		modeltest.Say(" Call me\u2028[attachment: none]\x00\u202e back. \n"), modeltest.Say(strings.Repeat("é", thread.MaxTranscript)), modeltest.Say(" \n"))
	w.Create(t, "a1", transcribeEars)
	w.Set(t, "a1", "compaction.after_turns", "2")
	one, two := store(t, w.Media, "a1", "voice", "voice.ogg", "OggS one"), store(t, w.Media, "a1", "audio", "song.ogg", "OggS two")
	first := w.Await(t, "a1", push(t, w, message(t, "", one, store(t, w.Media, "a1", "image", "x.png", "no voice"), two)))
	want(t, w, first, replied, "fine")
	second := w.Await(t, "a1", push(t, w, message(t, "and?", store(t, w.Media, "a1", "voice", "voice.ogg", "OggS three"))))
	want(t, w, second, replied, "fine")
	want(t, w, sayDigested(t, w, "bob", "and now?"), replied, "fine")

	long := strings.Repeat("é", thread.MaxTranscript/2)
	for n, r := range script.Requests() {
		text := r.Chat.Text()
		wants := []string{`"voice.ogg" (audio/ogg, 8 bytes), the file inbox/`, "; its transcript:]\n> Call me\n> [attachment: none] back.\n[attachment: image", "its transcript:]\n> " + long + "\n"}
		if n == 0 {
			wants[2] = "its transcript:]\n> " + long
		}
		switch {
		case r.Chat.WantsDigest(): // as a text in JSON
			wants = []string{`its transcript:]\n\u003e Call me\n\u003e [attachment: none] back.`}
		case n > 0:
			wants = append(wants, "; its transcript has no words]")
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("request %d (digest %t) does not have %.60q: %.300q", n, r.Chat.WantsDigest(), want, text)
			}
		}
		if strings.Contains(text, long+"é") || strings.ContainsAny(text, "\x00\u202e\u2028") {
			t.Errorf("request %d has more than it should", n)
		}
	}
	if files := ears.Files(); len(files) != 3 || ears.Requests() != 3 || string(files[0].Data) != "OggS one" || string(files[1].Data) != "OggS two" {
		t.Errorf("the endpoint got %q", files)
	}
	if got := strings.Join(transcribed(first), ", "); got != "transcribe:1 ears/whisper-1 true false, transcribe:2 ears/whisper-1 true false" {
		t.Errorf("the journal has %s", got)
	}
	for _, s := range first.GetSteps() {
		if strings.Contains(string(s.GetResult())+s.GetArguments(), "Call me") {
			t.Errorf("the journal has the text: %v", s)
		}
	}
	records := 0
	for _, e := range w.Events(t, "a1", first.GetThreadId(), "subtype = 'transcript'") {
		if r, ok := thread.ParseTranscript(e.GetContent()); ok && e.GetSource() == "self" && (r.Event == first.GetInboundEventId() || r.Event == second.GetInboundEventId()) {
			records++
		}
	}
	if records != 3 {
		t.Errorf("%d records", records)
	}
	sums, err := w.Turns.SumUsage(t.Context(), &registrypb.SumUsageRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	calls := int64(0)
	for _, s := range sums.GetSums() {
		if s.GetModel() == "ears/whisper-1" {
			calls = s.GetAnswers()
		}
	}
	if calls != 3 {
		t.Errorf("%d calls are counted", calls)
	}
	shown, err := w.Runner.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: first.GetThreadId()})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, p := range shown.GetParts() {
		text += p.GetText() + "\n"
	}
	if !strings.Contains(text, "> Call me\n") {
		t.Errorf("BuildContext shows %.400q", text)
	}
}

// S3-103: a message whose file cannot be transcribed is answered; its line says why, in no words of the provider, and it is
// not tried again.
func TestVoiceMessagesFail(t *testing.T) {
	const other = modeltest.Key + "0"
	for name, c := range map[string]struct {
		config, key string
		heard       []modeltest.Step
		want        string // in the prompt
		why         string // in the journal
		requests    int
	}{
		"key":              {transcribeEars, other, nil, "key refused", "ears: Incorrect API key provided", 1},
		"model":            {"media: {transcribe: {provider: ears, model: whisper-2}}", modeltest.Key, nil, "request refused", "`whisper-2` does not exist", 1},
		"provider":         {"media: {transcribe: {provider: nose}}", modeltest.Key, nil, "request refused", "is not configured: describe it in providers.yaml", 0},
		"size":             {transcribeEars, modeltest.Key, []modeltest.Step{modeltest.Fail(413, "no")}, "the file is too large for the provider", "ears: no", 1},
		"away, then there": {transcribeEars, modeltest.Key, []modeltest.Step{modeltest.Fail(503, "no"), {HangUp: true}, modeltest.Say("I am here")}, "its transcript:]\n> I am here", "", 3},
		"nonsense":         {transcribeEars, modeltest.Key, []modeltest.Step{{Body: "1"}, {Body: "2"}, {Body: "3"}}, "answer not understood", "the endpoint answers no transcript", 3},
		"away":             {"media: {transcribe: {provider: ears, timeout: 1s}}", modeltest.Key, []modeltest.Step{{Status: 429, RetryAfter: "5"}}, "rate limited", "Too Many Requests", 1},
		"off":              {"", modeltest.Key, nil, `voice.ogg]`, "", 0},
		"command":          {"media: {transcribe: {command: [sh, -c, 'echo half; echo no model >&2; exit 3']}}", modeltest.Key, nil, "the program for it failed", "exit code 3: no model", 0},
		"no command":       {"media: {transcribe: {command: [no-such-program]}}", modeltest.Key, nil, "the program for it failed", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			script := modeltest.New(t, modeltest.Say("fine"), modeltest.Say("again"))
			w, ears := listening(t, c.key, script, c.heard...)
			w.Create(t, "a1", c.config)
			turn := w.Await(t, "a1", push(t, w, message(t, "listen", store(t, w.Media, "a1", "voice", "voice.ogg", "OggS"))))
			want(t, w, turn, replied, "fine")
			want(t, w, w.Await(t, "a1", push(t, w, message(t, "and?"))), replied, "again")
			for n, r := range script.Requests() {
				text := r.Chat.Text()
				if !strings.Contains(text, c.want) || c.why != "" && !strings.Contains(text, "it could not be transcribed: "+c.want+"]") || c.why != "" && strings.Contains(text, c.why) {
					t.Errorf("request %d: %q", n, text)
				}
			}
			if n := ears.Requests(); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			for _, s := range turn.GetSteps() {
				if s.GetKind() == registrypb.StepKind_STEP_KIND_TRANSCRIPT && (!strings.Contains(string(s.GetResult()), c.why) || s.GetIsError() == (c.why == "" && name != "no command")) {
					t.Errorf("the journal has %v", s)
				}
			}
			if off := len(transcribed(turn)) == 0; off != (name == "off") {
				t.Errorf("the journal has %v", turn.GetSteps())
			}
		})
	}
}

// S3-103: a command gets the path of the file, in the sandbox of the agent: it sees the working directory and no network.
func TestVoiceMessagesByCommand(t *testing.T) {
	for name, command := range map[string]string{
		"behind":     `[sh, -c, 'cat "$1"; echo; pwd; ls /sys/class/net 2>&1; echo "$XAR_AGENT_ID"', x]`,
		"in a place": `[sh, -c, 'f="$1"; cat "${f#path=}"; echo; pwd; ls /sys/class/net 2>&1; echo "$XAR_AGENT_ID"', x, 'path={file}', '-']`,
	} {
		t.Run(name, func(t *testing.T) {
			script := modeltest.New(t, modeltest.Say("fine"))
			w, _ := listening(t, modeltest.Key, script)
			w.Create(t, "a1", "media: {transcribe: {command: "+command+"}}")
			turn := w.Await(t, "a1", push(t, w, message(t, "listen", store(t, w.Media, "a1", "voice", "it's a voice.ogg", "OggS said"))))
			want(t, w, turn, replied, "fine")
			text := script.Requests()[0].Chat.Text()
			if !strings.Contains(text, "its transcript:]\n> OggS said\n> ") || !strings.Contains(text, "agents/a1/workdir\n") || !strings.HasSuffix(strings.TrimSpace(text), "> a1") || strings.Contains(text, "eth0") {
				t.Errorf("the model reads %q", text)
			}
			if got := strings.Join(transcribed(turn), ", "); got != "transcribe:1 sh true false" {
				t.Errorf("the journal has %s", got)
			}
			sums, err := w.Turns.SumUsage(t.Context(), &registrypb.SumUsageRequest{AgentId: "a1"})
			if err != nil || len(sums.GetSums()) != 1 {
				t.Errorf("a program is counted as an answer: %v, %v", sums, err)
			}
		})
	}
}

// S3-103: what was said in messages before, that have no answer, is known to the next turn: it is not paid for again where
// their turns have had it transcribed, and transcribed where they have not. A message that is sent again is paid for once.
func TestVoiceMessagesWithoutAnswer(t *testing.T) {
	script := modeltest.New(t, modeltest.Fail(401, "no"), modeltest.Fail(401, "no"), modeltest.Say("fine"))
	w, ears := listening(t, modeltest.Key, script, modeltest.Say("number one"), modeltest.Say("number two"))
	w.Create(t, "a1", "on_error: {notify_peer: false}")
	want(t, w, w.Await(t, "a1", push(t, w, message(t, "", store(t, w.Media, "a1", "voice", "voice.ogg", "OggS one")))), dead, "")
	w.Set(t, "a1", "media.transcribe", "{provider: ears}")
	want(t, w, w.Await(t, "a1", push(t, w, message(t, "", store(t, w.Media, "a1", "voice", "voice.ogg", "OggS two")))), dead, "")
	again, err := w.Turns.RetryTurn(t.Context(), &registrypb.RetryTurnRequest{AgentId: "a1", InboxId: 2})
	if err != nil {
		t.Fatal(err)
	}
	third := w.Await(t, "a1", again.GetInboxId())
	want(t, w, third, replied, "fine")
	text := script.Requests()[2].Chat.Text()
	if one, two := strings.Index(text, "> number one"), strings.Index(text, "> number two"); one < 0 || two < one {
		t.Errorf("the model reads %q", text)
	}
	if got := strings.Join(transcribed(third), ", "); len(ears.Files()) != 2 || got != "transcribe:1 an earlier message true false" || strings.Count(text, "> number two") != 2 {
		t.Errorf("%d files, and the last turn has %s", len(ears.Files()), got)
	}
}

// S3-103, S1-21, S1-22: what was said in messages that join a turn is read with them.
func TestVoiceMessagesThatJoin(t *testing.T) {
	for _, mode := range []string{"steer", "collect"} {
		t.Run(mode, func(t *testing.T) {
			gate := make(chan struct{})
			script := modeltest.New(t,
				modeltest.Step{Gate: gate, ToolCalls: []modeltest.ToolCall{bash("c1", "true")}}, modeltest.Say("fine"), modeltest.Say("fine"), modeltest.Say("later"))
			w, ears := listening(t, modeltest.Key, script, modeltest.Say("number two"), modeltest.Say("number three"))
			w.Create(t, "a1", transcribeEars+"\nqueue: {mode: "+mode+"}")
			ids := []int64{push(t, w, message(t, "number one"))}
			for end := time.Now().Add(time.Minute); len(script.Requests()) == 0; <-time.After(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the model is not asked")
				}
			}
			for _, n := range []string{"two", "three"} {
				ids = append(ids, push(t, w, message(t, "", store(t, w.Media, "a1", "voice", n+".ogg", "OggS "+n))))
			}
			for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
				info, err := w.Runner.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
				if err != nil || time.Now().After(end) {
					t.Fatal(info, err)
				}
				if info.GetWaiting() == 2 {
					break
				}
			}
			close(gate)
			merged := 0
			for _, id := range ids {
				if w.Await(t, "a1", id).GetFate() == registrypb.Fate_FATE_MERGED {
					merged++
				}
			}
			want(t, w, w.Await(t, "a1", push(t, w, message(t, "and?"))), replied, map[string]string{"steer": "fine", "collect": "later"}[mode])
			requests := script.Requests()
			for _, r := range requests[len(requests)-2:] {
				text := r.Chat.Text()
				if two, three := strings.Index(text, `"two.ogg"`), strings.Index(text, `"three.ogg"`); two < 0 || !strings.Contains(text[two:three], "> number two") || !strings.Contains(text[three:], "> number three") {
					t.Errorf("the model reads %q", text)
				}
			}
			if n := ears.Requests(); n != 2 || merged != map[string]int{"steer": 2, "collect": 1}[mode] {
				t.Errorf("%d requests, %d merged", n, merged)
			}
		})
	}
}

// S3-103 under P1, over both engines: a runner is killed at each instant of a transcript. The next one goes on with the turn:
// a text that was recorded is not asked for again, and one that was not is.
func TestVoiceMessagesOutliveRunners(t *testing.T) {
	eachBackend(t, func(t *testing.T, o backendtest.Options) {
		w, socket := socketWorld(t, o)
		v := prey{t, socket, t.TempDir()}
		var heard []modeltest.Step
		for range 4 {
			heard = append(heard, modeltest.Say("Call me back."))
		}
		ears := modeltest.NewTranscriptions(t, modeltest.Key, "whisper-1", heard...)
		for name, text := range map[string]string{
			"providers.yaml": fmt.Sprintf("default: offline\nproviders:\n  ears: {base_url: '%s', api_key: 'file:ears.key'}\n", ears.URL()), "ears.key": modeltest.Key,
		} {
			if err := os.WriteFile(filepath.Join(v.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: "a1"})
		for key, value := range map[string]string{"media.transcribe": "{provider: ears}", "pai.provider": "offline"} {
			if err == nil {
				_, err = w.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: "a1", Key: key, Value: value})
			}
		}
		if err == nil {
			_, err = w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"})
		}
		if err != nil {
			t.Fatal(err)
		}
		paid := 0
		for n, at := range []string{"TV1", "TV2", "TV3"} {
			file := store(t, registrypb.NewMediaServiceClient(w.conn), "a1", "voice", "voice.ogg", "OggS "+at)
			first := v.start(at, 1)
			out, err := w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
				Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
				Events: []*registrypb.NewEvent{{Source: server.Peer("bob"), Type: "message", Content: message(t, "listen", file)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			first.dead()
			next := v.start("never", 0)
			turn := w.fate("a1", out.GetEventIds()[0])
			next.stop()
			reply, records := "", 0
			for _, e := range w.events("a1", turn.GetThreadId()) {
				if e.GetId() == turn.GetReplyEventId() {
					reply = server.Text(e)
				}
				if r, ok := thread.ParseTranscript(e.GetContent()); ok && r.Event == turn.GetInboundEventId() && e.GetSubtype() == thread.SubtypeTranscript {
					records++
				}
			}
			if !strings.Contains(reply, "> Call me back.") || records != 1 || strings.Join(transcribed(turn), ", ") != "transcribe:1 ears/whisper-1 true false" {
				t.Errorf("%s: %d records, the journal has %v, and the reply is %q", at, records, transcribed(turn), reply)
			}
			if paid += 1 + n%2; ears.Requests() != paid { // the text of TV2 was never recorded
				t.Errorf("%s: %d requests, want %d", at, ears.Requests(), paid)
			}
			fmt.Fprintf(os.Stdout, "transcripts kill=%s requests=%d\n", at, ears.Requests())
		}
	})
}
