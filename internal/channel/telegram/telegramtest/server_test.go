package telegramtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type server struct {
	*telegramtest.Server
	t      *testing.T
	client http.Client
}

func serve(t *testing.T) *server {
	t.Helper()
	s, err := telegramtest.Start(telegramtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := &server{Server: s, t: t, client: http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		s.Close()
	})
	return w
}

// do makes a request, and returns the status and the body of its answer.
func (s *server) do(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(bytes.TrimSpace(got))
}

func (s *server) call(method, body string) (int, string) {
	s.t.Helper()
	return s.do("POST", "/bot"+s.Token()+"/"+method, body)
}

// The server refuses what the platform refuses.
func TestRefuses(t *testing.T) {
	s := serve(t)
	chat := telegramtest.Chat{ID: -42, Type: "supergroup", Title: "Friends"}
	s.Say(telegramtest.Message{Chat: chat, From: &telegramtest.User{ID: 7, FirstName: "Ann"}, Text: "in a topic", Thread: 9})
	s.AddChat(telegramtest.Chat{ID: 8, Type: "private"})
	s.Block(8, true)
	emoji := strings.Repeat("😀", 2048)
	for _, c := range []struct {
		name, method, body string
		status             int
		says               string
	}{
		{"known", "sendMessage", `{"chat_id":-42,"text":"x"}`, 200, `"ok":true`},
		{"4096 units", "sendMessage", `{"chat_id":-42,"text":"` + emoji + `"}`, 200, `"ok":true`},
		{"4097 units", "sendMessage", `{"chat_id":-42,"text":"` + emoji + `x"}`, 400, "message is too long"},
		{"no text", "sendMessage", `{"chat_id":-42,"text":" "}`, 400, "message text is empty"},
		{"a chat that is not known", "sendMessage", `{"chat_id":5,"text":"x"}`, 400, "chat not found"},
		{"a chat by another platform's id", "sendMessage", `{"chat_id":"C1","text":"x"}`, 400, "chat not found"},
		{"blocked", "sendMessage", `{"chat_id":8,"text":"x"}`, 403, "blocked"},
		{"a topic", "sendMessage", `{"chat_id":-42,"message_thread_id":9,"text":"x"}`, 200, `"message_thread_id":9`},
		{"a topic that is not known", "sendMessage", `{"chat_id":-42,"message_thread_id":10,"text":"x"}`, 400, "message thread not found"},
		{"an entity at the end", "sendMessage", `{"chat_id":-42,"text":"😀b","entities":[{"type":"bold","offset":2,"length":1}]}`, 200, `"ok":true`},
		{"an entity beyond", "sendMessage", `{"chat_id":-42,"text":"😀b","entities":[{"type":"bold","offset":2,"length":2}]}`, 400, "can't parse entities"},
		{"an empty entity", "sendMessage", `{"chat_id":-42,"text":"b","entities":[{"type":"bold","offset":0,"length":0}]}`, 400, "can't parse entities"},
		{"an unknown entity", "sendMessage", `{"chat_id":-42,"text":"b","entities":[{"type":"loud","offset":0,"length":1}]}`, 400, "can't parse entities"},
		{"a link to nowhere", "sendMessage", `{"chat_id":-42,"text":"b","entities":[{"type":"text_link","offset":0,"length":1}]}`, 400, "can't parse entities"},
		{"markup", "sendMessage", `{"chat_id":-42,"text":"<b>b</b>","parse_mode":"HTML"}`, 400, "parse_mode"},
		{"a command of 64 bytes", "sendMessage", `{"chat_id":-42,"text":"b","reply_markup":{"inline_keyboard":[[{"text":"x","callback_data":"` + strings.Repeat("x", 64) + `"}]]}}`, 200, `"ok":true`},
		{"a command of 65 bytes", "sendMessage", `{"chat_id":-42,"text":"b","reply_markup":{"inline_keyboard":[[{"text":"x","callback_data":"` + strings.Repeat("x", 65) + `"}]]}}`, 400, "BUTTON_DATA_INVALID"},
		{"a reply to nothing", "sendMessage", `{"chat_id":-42,"text":"b","reply_parameters":{"message_id":1}}`, 400, "message to be replied not found"},
		{"the same, allowed", "sendMessage", `{"chat_id":-42,"text":"b","reply_parameters":{"message_id":1,"allow_sending_without_reply":true}}`, 200, `"ok":true`},
		{"an edit of another's message", "editMessageText", `{"chat_id":-42,"message_id":5502,"text":"b"}`, 400, "message to edit not found"},
		{"an edit that changes nothing", "editMessageText", `{"chat_id":-42,"message_id":5503,"text":"x"}`, 400, "message is not modified"},
		{"a deletion of nothing", "deleteMessage", `{"chat_id":-42,"message_id":1}`, 400, "message to delete not found"},
		{"a file that is not known", "getFile", `{"file_id":"x"}`, 400, "invalid file_id"},
		{"a method that is not known", "sendDice", `{"chat_id":-42}`, 404, "method not found"},
		{"no JSON", "sendMessage", `chat_id=-42`, 400, "not JSON"},
	} {
		status, body := s.call(c.method, c.body)
		if status != c.status || !strings.Contains(body, c.says) || status != 200 && !strings.Contains(body, fmt.Sprintf(`"error_code":%d`, status)) {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
	for path, want := range map[string]int{"/bot4242:wrong/getMe": 401, "/botwrong/getMe": 404, "/file/bot4242:wrong/x": 401, "/": 404, "/bot": 404} {
		if status, body := s.do("POST", path, "{}"); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// The server counts what a bot acknowledged that it never got, and what it returned again after an
// acknowledgement. An offset of another server acknowledges nothing.
func TestCounts(t *testing.T) {
	s := serve(t)
	for range 5 {
		s.Push(map[string]any{"message": map[string]any{"text": "x"}})
	}
	s.call("getUpdates", `{"offset":9900}`)
	if st := s.Stats(); st.Acked != 0 || st.Returned != 5 {
		t.Errorf("another server's offset: %+v", st)
	}
	s.Push(map[string]any{"message": map[string]any{"text": "x"}})
	s.call("getUpdates", `{"offset":9007,"limit":1}`)
	if st := s.Stats(); st.Acked != 6 || st.Lost != 1 || st.Repeated != 0 {
		t.Errorf("ahead of what was returned: %+v", st)
	}
	s.Repeat(2)
	if _, body := s.call("getUpdates", `{"offset":9007}`); strings.Count(body, "update_id") != 2 {
		t.Error(body)
	}
	if st := s.Stats(); st.Repeated != 2 {
		t.Errorf("%+v", st)
	}
	first := make(chan string, 1)
	go func() {
		_, body := s.call("getUpdates", `{"offset":9007,"timeout":50}`)
		first <- body
	}()
	if err := s.Wait(t.Context(), func() bool { return s.Underway("getUpdates") == 1 && s.Stats().Polls == 4 }); err != nil {
		t.Fatal(err)
	}
	s.call("getUpdates", `{"offset":9007}`)
	if body := <-first; !strings.Contains(body, "409") || s.Stats().Conflicts != 1 {
		t.Errorf("overlapping: %s %+v", body, s.Stats())
	}
}

// Other programs play the people over HTTP.
func TestControl(t *testing.T) {
	s := serve(t)
	const ann = `{"id":7,"first_name":"Ann"}`
	ok := func(method, path, body, says string) {
		t.Helper()
		if status, got := s.do(method, "/control/"+path, body); status != 200 || !strings.Contains(got, says) {
			t.Errorf("%s %s: %d %s", method, path, status, got)
		}
	}
	updates := func() string {
		t.Helper()
		_, body := s.call("getUpdates", `{}`)
		return body
	}
	ok("POST", "say", `{"chat":{"id":7,"type":"private"},"from":`+ann+`,"text":"/new@demo_bot hi"}`, `{"message":5502,"update":9001}`)
	if got := updates(); !strings.Contains(got, `"entities":[{"type":"bot_command","offset":0,"length":13}]`) {
		t.Error(got)
	}
	ok("POST", "edit", `{"chat":7,"message":5502,"text":"changed"}`, `"update":9002`)
	ok("POST", "push", `{"poll":{"id":"1"}}`, `"update":9003`)
	if got := updates(); !strings.Contains(got, `"edited_message"`) || !strings.Contains(got, `"text":"changed"`) || !strings.Contains(got, `"poll"`) {
		t.Error(got)
	}
	ok("POST", "fault", `{"method":"sendMessage","status":429,"retry_after":3}`, "{}")
	const reply = `{"chat_id":7,"text":"May I?","reply_markup":{"inline_keyboard":[[{"text":"Yes","callback_data":"/yes"}]]}}`
	if status, body := s.call("sendMessage", reply); status != 429 || !strings.Contains(body, `"retry_after":3`) {
		t.Errorf("%d %s", status, body)
	}
	s.call("sendMessage", reply)
	ok("GET", "wait?text=May&timeout=5s", "", `"message_id":5503`)
	ok("POST", "press", `{"chat":7,"message":5503,"from":`+ann+`}`, `"update":9004`)
	if got := updates(); !strings.Contains(got, `"data":"/yes"`) {
		t.Error(got)
	}
	ok("POST", "fault", `{"method":"getMe","status":500,"times":-1}`, "{}")
	for range 3 {
		if status, _ := s.call("getMe", ""); status != 500 {
			t.Errorf("a fault that stays: %d", status)
		}
	}
	ok("POST", "heal", "", "{}")
	if status, _ := s.call("getMe", "{}"); status != 200 {
		t.Errorf("healed: %d", status)
	}
	ok("POST", "block", `{"chat":7,"blocked":true}`, "{}")
	if status, _ := s.call("sendMessage", `{"chat_id":7,"text":"x"}`); status != 403 {
		t.Errorf("blocked: %d", status)
	}
	ok("POST", "repeat", `{"n":1}`, "{}")
	ok("GET", "messages?chat=7", "", `"text":"May I?"`)
	ok("GET", "calls?method=sendMessage", "", `"status":429`)
	var st telegramtest.Stats
	if _, body := s.do("GET", "/control/stats", ""); json.Unmarshal([]byte(body), &st) != nil || st.Updates != 4 || st.Returned != 4 {
		t.Error(body)
	}
	for request, want := range map[string]int{
		"POST say": 400, "POST edit": 400, "POST press": 400, "POST nothing": 404, "GET say": 404, "GET wait?text=never&timeout=10ms": 408,
	} {
		method, path, _ := strings.Cut(request, " ")
		if status, body := s.do(method, "/control/"+path, ""); status != want {
			t.Errorf("%s: %d %s", request, status, body)
		}
	}
	for _, body := range []string{`{"chat":7,"message":1}`, `{"chat":99}`} {
		for _, what := range []string{"edit", "press"} {
			if status, got := s.do("POST", "/control/"+what, body); status != 400 || !strings.Contains(got, "error") {
				t.Errorf("%s %s: %d %s", what, body, status, got)
			}
		}
	}
}
