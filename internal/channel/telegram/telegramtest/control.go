package telegramtest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// control lets programs play the people. Bodies and answers are JSON.
//
//	POST /control/say      a Message                                 {"update", "message"}
//	POST /control/edit     {"chat", "message", "text"}               {"update"}
//	POST /control/press    {"chat", "message", "from", "data"}       {"update"}
//	POST /control/push     an update of any form                     {"update"}
//	POST /control/fault    a Fault                                   {}
//	POST /control/heal                                               {}
//	POST /control/repeat   {"n"}                                     {}
//	POST /control/block    {"chat", "blocked"}                       {}
//	GET  /control/stats                                              Stats
//	GET  /control/messages?chat=ID                                   messages of the bot
//	GET  /control/calls?method=NAME                                  calls of the bot
//	GET  /control/wait?text=TEXT&after=ID&timeout=30s                the message, or 408
func (s *Server) control(w http.ResponseWriter, r *http.Request, what string) {
	var in struct {
		Chat    int64  `json:"chat"`
		Message int64  `json:"message"`
		Text    string `json:"text"`
		Data    string `json:"data"`
		From    User   `json:"from"`
		N       int    `json:"n"`
		Blocked bool   `json:"blocked"`
	}
	read := func(v any) bool {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(v); err != nil {
			write(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return false
		}
		return true
	}
	updated := func(update int64, err error) {
		if err != nil {
			write(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		write(w, http.StatusOK, map[string]int64{"update": update})
	}
	done := func() { write(w, http.StatusOK, struct{}{}) }
	query := r.URL.Query()
	switch r.Method + " " + what {
	case "POST say":
		var m Message
		if read(&m) {
			update, message := s.Say(m)
			write(w, http.StatusOK, map[string]int64{"update": update, "message": message})
		}
	case "POST edit":
		if read(&in) {
			updated(s.Edit(in.Chat, in.Message, in.Text))
		}
	case "POST press":
		if read(&in) {
			updated(s.Press(in.Chat, in.Message, in.From, in.Data))
		}
	case "POST push":
		var u map[string]any
		if read(&u) {
			updated(s.Push(u), nil)
		}
	case "POST fault":
		var f Fault
		if read(&f) {
			s.Fail(f)
			done()
		}
	case "POST heal":
		s.Heal()
		done()
	case "POST repeat":
		if read(&in) {
			s.Repeat(in.N)
			done()
		}
	case "POST block":
		if read(&in) {
			s.Block(in.Chat, in.Blocked)
			done()
		}
	case "GET stats":
		write(w, http.StatusOK, s.Stats())
	case "GET messages":
		chat, _ := strconv.ParseInt(query.Get("chat"), 10, 64) // 0: all
		write(w, http.StatusOK, s.Messages(chat))
	case "GET calls":
		write(w, http.StatusOK, s.Calls(query.Get("method")))
	case "GET wait":
		limit, err := time.ParseDuration(query.Get("timeout"))
		if err != nil || limit <= 0 || limit > time.Minute {
			limit = 30 * time.Second
		}
		after, _ := strconv.ParseInt(query.Get("after"), 10, 64) // 0: from the first
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		m, err := s.WaitText(ctx, query.Get("text"), after)
		if err != nil {
			write(w, http.StatusRequestTimeout, map[string]string{"error": err.Error()})
			return
		}
		write(w, http.StatusOK, m)
	default:
		http.NotFound(w, r)
	}
}
