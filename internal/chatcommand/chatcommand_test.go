package chatcommand_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/chatcommand"
)

func TestParse(t *testing.T) {
	bot := chatcommand.Rules{Bot: "demo_bot", Mentions: []string{"@demo_bot", "<@U1>"}}
	bang := chatcommand.Rules{Mentions: bot.Mentions, Bang: true}
	long := strings.Repeat("x", chatcommand.MaxArgs)
	for _, c := range []struct {
		text       string
		rules      chatcommand.Rules
		name, args string // no name: it is a message
	}{
		{"/new", bot, "new", ""},
		{" /new \n", bot, "new", ""},
		{"/new  hello, you ", bot, "new", "hello, you"},
		{"/new hello\nyou", bot, "new", "hello\nyou"},
		{"/new\nhello", bot, "new", "hello"},
		{"/new@demo_bot", bot, "new", ""},
		{"/new@Demo_Bot hello", bot, "new", "hello"},
		{"/new@other_bot", bot, "", ""},
		{"/new@", bot, "", ""},
		{"/new@", chatcommand.Rules{}, "", ""},
		{"/new@demo_bot", chatcommand.Rules{}, "", ""},
		{"@demo_bot /model m1", bot, "model", "m1"},
		{"@demo_bot: /model m1", bot, "model", "m1"},
		{"<@U1> /model", bot, "model", ""},
		{"@demo_bot2 /model", bot, "", ""},
		{"@other /model", bot, "", ""},
		{"@demo_bot hello", bot, "", ""},
		{"@demo_bot", bot, "", ""},
		{"!new", bot, "", ""},
		{"!new", bang, "new", ""},
		{"<@U1> !think off", bang, "think", "off"},
		{"/status", bang, "status", ""},
		{"/think high", bot, "think", "high"},
		{"/approve ap-7 always", bot, "approve", "ap-7 always"},
		{"/new " + long, bot, "new", long},
		{"/new " + long + "x", bot, "", ""},

		{"stop", bot, "stop", ""},
		{"Stop", bot, "stop", ""},
		{"ABORT", bot, "stop", ""},
		{"停止", bot, "stop", ""},
		{"@demo_bot stop", bot, "stop", ""},
		{"/stop", bot, "stop", ""},
		{"/stop now", bot, "stop", "now"},
		{"stop!", bot, "", ""},
		{"please stop", bot, "", ""},
		{"stop the car", bot, "", ""},
		{"/abort", bot, "", ""},

		{"", bot, "", ""},
		{"/", bot, "", ""},
		{"//new", bot, "", ""},
		{"/New", bot, "", ""},
		{"/new/x", bot, "", ""},
		{"/news", bot, "", ""},
		{"/notify x", bot, "", ""},
		{"/exec ls", bot, "", ""},
		{"/system x", bot, "", ""},
		{"hello /new", bot, "", ""},
		{"/new\x00", bot, "", ""},
	} {
		got, ok := chatcommand.Parse(c.text, c.rules)
		if ok != (c.name != "") || got.Name != c.name || got.Args != c.args {
			t.Errorf("%.40q: %.40q %v, want %q %.40q", c.text, got, ok, c.name, c.args)
		}
	}
}

// Every command has a name of the grammar, one line of help and a class, and is found; what the registry keeps for
// itself is none.
func TestList(t *testing.T) {
	name := regexp.MustCompile(`^[a-z_]{1,32}$`)
	queued := map[string]bool{
		"new": true, "reset": true, "compact": true, "model": true, "think": true,
		"verbose": true, "reasoning": true, "queue": true, "elevated": true, "stop": true,
	}
	for _, s := range chatcommand.List() {
		found, ok := chatcommand.Find(s.Name)
		if !ok || found != s || !name.MatchString(s.Name) || s.Help == "" || strings.Contains(s.Help, "\n") {
			t.Errorf("%+v: found %+v %v", s, found, ok)
		}
		if chatcommand.Queued(s.Name) != queued[s.Name] {
			t.Errorf("%s: class %d", s.Name, s.Class)
		}
	}
	if !chatcommand.IsCut("stop") || chatcommand.IsCut("new") || chatcommand.IsCut("") {
		t.Error("stop is the only cut")
	}
	if !chatcommand.AsksModel("compact", "") || !chatcommand.AsksModel("new", "x") || chatcommand.AsksModel("new", "") || chatcommand.AsksModel("model", "x") {
		t.Error("/compact and a message after /new ask a model, and no other")
	}
	for _, name := range []string{"notify", "exec", "system", "", "New"} {
		if _, ok := chatcommand.Find(name); ok || chatcommand.Queued(name) {
			t.Errorf("%q is a command", name)
		}
	}
}

// What is read is of the list and within its limits, and what is written back is read as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"/new hi", "!model x", "@b /stop", "/new@b x", "停止", "/\xff", "<@U1>,: /think\noff"} {
		f.Add(s, "b", true)
	}
	f.Fuzz(func(t *testing.T, text, bot string, bang bool) {
		r := chatcommand.Rules{Bot: bot, Mentions: []string{"@" + bot, "<@U1>"}, Bang: bang}
		got, ok := chatcommand.Parse(text, r)
		if !ok {
			if got != (chatcommand.Command{}) {
				t.Fatalf("no command, and %q", got)
			}
			return
		}
		if _, known := chatcommand.Find(got.Name); !known || len(got.Args) > chatcommand.MaxArgs || !strings.Contains(text, got.Args) {
			t.Fatalf("%q is %q", text, got)
		}
		if again, ok := chatcommand.Parse("/"+got.Name+" "+got.Args, chatcommand.Rules{}); !ok || again != got {
			t.Fatalf("%q is %q, which is %q %v", text, got, again, ok)
		}
	})
}
