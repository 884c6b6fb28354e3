package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/plugin"
	"github.com/theclaw/agents/internal/channel/plugin/plugintest"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

func TestCheck(t *testing.T) {
	for address, want := range map[string]bool{
		"unix:/run/a.sock": true, "unix:///run/a.sock": true, "": false, "/run/a.sock": false, "unix:a.sock": false, "unix://a.sock": false,
		"dns:localhost:1": false, "unix:/a\nb": false, "unix:/" + strings.Repeat("a", 106): true, "unix:/" + strings.Repeat("a", 107): false,
	} {
		attribute, problem := plugin.Type.Check(channel.Definition{Type: "plugin", Plugin: address})
		if (problem == "") != want || problem != "" && attribute != "plugin" {
			t.Errorf("%.40q: %s %s", address, attribute, problem)
		}
	}
}

// What a person writes arrives with all that the plugin says of it. An edit is another message that
// names the first, and ids that look alike joined are different.
func TestUpdate(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	sent := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	u := &channelv1.ReceiveResponse{
		Conversation: &channelv1.Conversation{Kind: channelv1.Kind_KIND_CHANNEL, SessionId: "c:7", Thread: "t1", Parent: "c", GuildId: "g", TeamId: "w"},
		MessageId:    "1", PeerId: "501", PeerName: "Ann", Text: "hello", Mentioned: true, Bot: true, Forwarded: true, Album: "al",
		ReplyTo: &channelv1.ReplyTo{MessageId: "b1", Text: "before", Mine: true}, SentAt: timestamppb.New(sent),
		Extra: map[string]string{"irc.modes": "+o"},
	}
	s.Say(u)
	edit := proto.CloneOf(u)
	edit.Edit, edit.Text = "v2", "changed"
	s.Say(edit)
	other := proto.CloneOf(u)
	other.Conversation.SessionId, other.MessageId = "c", ":71"
	s.Say(other)
	channeltest.Run(t, receiver(t, s), in)
	var list []channel.Update
	in.Await(t, "3 updates", func() bool { list = slices.Clone(in.Taken); return len(list) == 3 })
	got := list[0]
	if got.Kind != "channel" || got.SessionID != "c:7" || got.Thread != "t1" || got.Parent != "c" || got.Guild != "g" || got.Team != "w" || got.MessageID != "1" ||
		got.PeerID != "501" || got.PeerName != "Ann" || got.Text != "hello" || !got.Mentioned || !got.Bot || !got.Forwarded || got.Album != "al" ||
		got.ReplyTo == nil || *got.ReplyTo != (channel.ReplyTo{ID: "b1", Text: "before", Mine: true}) || !got.SentAt.Equal(sent) || got.EditOf != "" || len(got.Extra) != 1 || got.Extra["irc.modes"] != "+o" {
		t.Errorf("%+v", got)
	}
	if list[1].EditOf != got.Key || list[1].Key == got.Key || !strings.HasPrefix(list[1].Key, got.Key+":e") || list[2].Key == got.Key {
		t.Errorf("keys %q, %q of %q, %q", got.Key, list[1].Key, list[1].EditOf, list[2].Key)
	}
	if in.Identity != "bot-1" || in.Name != "@demo_bot" || !strings.HasPrefix(got.Key, "plugin:bot-1:") {
		t.Errorf("%q %q %q", in.Identity, in.Name, got.Key)
	}
}

// A message that breaks a rule is taken like others, for the registry to refuse it; one without a
// position ends the stream, for it could not be confirmed.
func TestBadUpdate(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	s.Say(&channelv1.ReceiveResponse{Text: "without a place"})
	s.Say(plugintest.Direct("1", "good"))
	channeltest.Run(t, receiver(t, s), in)
	in.Await(t, "2 updates", func() bool { return len(in.Taken) == 2 })
	if u := in.Taken[0]; u.Kind != "" || u.SessionID != "" || u.Text != "without a place" {
		t.Errorf("%+v", u)
	}
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Confirmed == 2 }); err != nil {
		t.Error(err)
	}
}

// A message whose ids no answer can name, because they are too long or hold NUL, has no key, so that it is refused; the longest ids are taken.
func TestTooLongToAnswer(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	long := func(n int) string { return strings.Repeat("é", n/2) } // two bytes each
	for _, more := range []int{0, 2} {
		for i := range 6 {
			bytes := []int{4096, 4096, 4096, 1024, 256, 256}
			bytes[i] += more
			s.Say(&channelv1.ReceiveResponse{
				Conversation: &channelv1.Conversation{Kind: channelv1.Kind_KIND_DM, SessionId: long(bytes[0]), Thread: long(bytes[1]), GuildId: long(bytes[4]), TeamId: long(bytes[5])},
				PeerId:       long(bytes[2]), MessageId: long(bytes[3]), Text: "hi",
			})
		}
	}
	s.Say(plugintest.Direct("a\x00b", "hi"))
	channeltest.Run(t, receiver(t, s), in)
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Confirmed == 13 }); err != nil {
		t.Fatal(err)
	}
	for i, u := range in.Taken {
		if valid := i < 6; (u.Key != "") != valid {
			t.Errorf("%d: key %q, answerable: %v", i, u.Key, valid)
		}
	}
}

// The position that is confirmed is kept, and the next stream begins with it.
func TestPosition(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	stop := channeltest.Run(t, receiver(t, s), in)
	s.Say(plugintest.Direct("1", "one"))
	s.Say(plugintest.Direct("1", "two"))
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Confirmed == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	channeltest.Run(t, receiver(t, s), in)
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Streams == 2 }); err != nil {
		t.Fatal(err)
	}
	if got := s.First(); !slices.Equal(got, []string{"", "2"}) {
		t.Errorf("%q", got)
	}
}

// A plugin that is killed while messages are on their way loses none: the next one sends again what
// was not confirmed, with the same keys.
func TestPluginRestarts(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	in.Do(func() { in.Hold = func(u channel.Update) bool { return u.Text != "stored" } })
	ended := make(chan error, 1)
	go func() { ended <- receiver(t, s).Receive(t.Context(), in) }()
	for _, text := range []string{"stored", "held", "held too"} {
		s.Say(plugintest.Direct("1", text))
	}
	in.Await(t, "3 updates", func() bool { return len(in.Taken) == 3 })
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Confirmed == 1 }); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if e := channel.AsError(<-ended); e == nil || e.Class != channel.Unavailable || e.Reason != "" || !strings.Contains(e.What, "pl") {
		t.Fatalf("%+v", e)
	}
	if e := channel.AsError(receiver(t, s).Receive(t.Context(), in)); e == nil || !strings.Contains(e.What, "cannot be reached at /") || !strings.Contains(e.Fix, "channels.pl.plugin") {
		t.Errorf("%+v", e)
	}
	in.Release() // the registry has them all the same
	if err := s.Serve(); err != nil {
		t.Fatal(err)
	}
	channeltest.Run(t, receiver(t, s), in)
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Confirmed == 3 }); err != nil {
		t.Fatal(err)
	}
	if len(in.Taken) != 5 || len(in.Stored) != 3 || s.Stats().Lost != 0 {
		t.Errorf("taken %q, stored %v, %+v", in.Texts(), in.Stored, s.Stats())
	}
}

// A plugin whose platform cannot be reached is given up after two probes, one whose token is refused
// at once; one that knows no probes is not.
func TestProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  plugintest.Fault
		probes int
		reason string
	}{
		"unavailable":     {plugintest.Fault{Code: codes.Unavailable, Message: "the server of the platform is away", Times: -1}, 2, ""},
		"unauthenticated": {plugintest.Fault{Code: codes.Unauthenticated, Message: "the token is refused", Times: -1}, 1, channel.ReasonAuth},
		"aborted":         {plugintest.Fault{Code: codes.Aborted, Message: "another program reads", Times: -1}, 1, channel.ReasonConflict},
		"once":            {plugintest.Fault{Code: codes.Unavailable, Message: "away", Times: 1}, 0, ""},
		"unimplemented":   {plugintest.Fault{Code: codes.Unimplemented, Message: "no probes", Times: -1}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			tc.fault.Method = "Probe"
			s.Fail(tc.fault)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- plugin.NewReceiver("pl", definition(s), time.Millisecond).Receive(ctx, channeltest.NewIntake())
			}()
			if tc.probes == 0 {
				if err := s.Wait(t.Context(), func() bool { return s.Stats().Probes >= 5 }); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
			e := channel.AsError(<-ended)
			if e == nil || e.Reason != tc.reason || !strings.Contains(e.What, tc.fault.Message) || s.Stats().Probes != tc.probes {
				t.Errorf("%+v after %d probes", e, s.Stats().Probes)
			}
		})
	}
}

// Files are read in pieces up to a limit; one that is not there, or breaks off, says so.
func TestAttachment(t *testing.T) {
	s, in := start(t, nil), channeltest.NewIntake()
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	s.AddFile("f1", data)
	u := plugintest.Direct("1", "with files")
	u.Attachments = []*channelv1.Attachment{
		{Id: "f1", Type: "image", Mime: "image/png", Name: "a.png", Size: int64(len(data))}, {Id: "f1"}, {Id: "gone"}, {Name: "without data"}, {Id: "f1", Size: -5},
	}
	s.Say(u)
	channeltest.Run(t, receiver(t, s), in)
	in.Await(t, "an update", func() bool { return len(in.Taken) == 1 })
	list := in.Taken[0].Attachments
	if len(list) != 5 || list[0].Type != "image" || list[0].MIME != "image/png" || list[0].Name != "a.png" || list[0].Size != int64(len(data)) || list[3].Open != nil || list[4].Size != 0 {
		t.Fatalf("%+v", list)
	}
	read := func(n int, limit int64) ([]byte, error) {
		f, err := list[n].Open(t.Context(), limit)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(f)
	}
	for _, n := range []int{0, 1, 4} {
		if got, err := read(n, 1<<20); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d: %d bytes, %v", n, len(got), err)
		}
		if _, err := read(n, 1000); !errors.Is(err, channel.ErrTooLarge) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, err := read(2, 1000); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	s.Stop()
	if _, err := read(0, 1<<20); err == nil {
		t.Error("read from a plugin that has ended")
	}
}

// What a plugin says about itself is used within its limits only.
func TestDescription(t *testing.T) {
	change := func(f func(*channelv1.DescribeResponse)) *channelv1.DescribeResponse {
		d := plugintest.Default()
		f(d)
		return d
	}
	for want, d := range map[string]*channelv1.DescribeResponse{
		"identity has 0 bytes":      change(func(d *channelv1.DescribeResponse) { d.Identity = "" }),
		"identity has 257 bytes":    change(func(d *channelv1.DescribeResponse) { d.Identity = strings.Repeat("a", 257) }),
		"max_text is 63":            change(func(d *channelv1.DescribeResponse) { d.MaxText = 63 }),
		"max_text is 100001":        change(func(d *channelv1.DescribeResponse) { d.MaxText = 100_001 }),
		"typing_every is 1ms":       change(func(d *channelv1.DescribeResponse) { d.Capabilities.TypingEvery = durationpb.New(time.Millisecond) }),
		"text_unit is not one that": change(func(d *channelv1.DescribeResponse) { d.TextUnit = 9 }),
		"max_text is 0":             {Identity: "x"},
	} {
		s := start(t, d)
		e := channel.AsError(receiver(t, s).Receive(t.Context(), channeltest.NewIntake()))
		if e == nil || !strings.Contains(e.What, want) || e.Fix != "correct the plugin" {
			t.Errorf("%s: %+v", want, e)
		}
		s.Say(plugintest.Direct("1", "hello"))
		_, err := open(t, s).Send(t.Context(), channel.Message{Key: "k", Text: "x", ReplyContext: place("1")})
		if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || e.InDoubt || s.Stats().Sends != 0 {
			t.Errorf("%s: %+v", want, e)
		}
	}
	// The least that a plugin has to say.
	s := start(t, &channelv1.DescribeResponse{Identity: "x\x07y", MaxText: 64})
	in := channeltest.NewIntake()
	channeltest.Run(t, receiver(t, s), in)
	in.Await(t, "connected", func() bool { return in.Identity == "x\x07y" && in.Name == "x y" })
	c := open(t, s)
	if l := c.(channel.Limiter).Limit(); l.Max != 64 || l.Units != nil || c.Guarantee() != channel.None {
		t.Errorf("%+v %v", l, c.Guarantee())
	}
	if again, err := c.(channel.Typer).Typing(t.Context(), place("1")); again != time.Hour || err != nil {
		t.Error(again, err)
	}
	if id, err := c.(channel.Finder).Find(t.Context(), "1207"); id != "1207" || err != nil {
		t.Error(id, err)
	}
	for what, err := range map[string]error{
		"edit": c.(channel.Editor).Edit(t.Context(), "b1", channel.Message{Text: "x", ReplyContext: place("1")}), "delete": c.(channel.Editor).Delete(t.Context(), "b1", place("1")),
		"react": c.(channel.Reactor).React(t.Context(), "b1", "x", place("1")),
	} {
		if e := channel.AsError(err); e == nil || e.Class != channel.Rejected || !strings.Contains(e.What, "cannot") {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

// S3-104: what each answer of a plugin means for a send.
func TestSendFails(t *testing.T) {
	for name, tc := range map[string]struct {
		fault   plugintest.Fault
		class   channel.Class
		inDoubt bool
		reason  string
		retry   time.Duration
	}{
		"unavailable":                  {plugintest.Fault{Code: codes.Unavailable}, channel.Unavailable, true, "", 0},
		"unavailable with RetryInfo":   {plugintest.Fault{Code: codes.Unavailable, RetryAfter: time.Minute}, channel.Unavailable, false, "", time.Minute},
		"exhausted with RetryInfo":     {plugintest.Fault{Code: codes.ResourceExhausted, RetryAfter: 72 * time.Hour}, channel.Unavailable, false, "", 24 * time.Hour},
		"exhausted":                    {plugintest.Fault{Code: codes.ResourceExhausted}, channel.Unavailable, true, "", 0},
		"unauthenticated":              {plugintest.Fault{Code: codes.Unauthenticated}, channel.Unavailable, false, channel.ReasonAuth, 0},
		"aborted":                      {plugintest.Fault{Code: codes.Aborted}, channel.Unavailable, false, channel.ReasonConflict, 0},
		"invalid":                      {plugintest.Fault{Code: codes.InvalidArgument}, channel.Rejected, false, "", 0},
		"precondition":                 {plugintest.Fault{Code: codes.FailedPrecondition}, channel.Rejected, false, "", 0},
		"not found":                    {plugintest.Fault{Code: codes.NotFound}, channel.Rejected, false, "", 0},
		"denied":                       {plugintest.Fault{Code: codes.PermissionDenied}, channel.Rejected, false, "", 0},
		"unimplemented":                {plugintest.Fault{Code: codes.Unimplemented}, channel.Rejected, false, "", 0},
		"unknown, such as a traceback": {plugintest.Fault{Code: codes.Unknown, After: true}, channel.Failed, true, "", 0},
		"internal":                     {plugintest.Fault{Code: codes.Internal}, channel.Failed, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			s.Say(plugintest.Direct("1", "hello"))
			tc.fault.Method, tc.fault.Message, tc.fault.Times = "Send", "because\n\x1b[2J of "+strings.Repeat("x", 5000), 1
			s.Fail(tc.fault)
			c := open(t, s)
			m := channel.Message{Key: "k", Text: "hi", ReplyContext: place("1")}
			_, err := c.Send(t.Context(), m)
			e := channel.AsError(err)
			if e == nil || e.Class != tc.class || e.InDoubt != tc.inDoubt || e.Reason != tc.reason || e.RetryAfter != tc.retry || len(e.What) > 300 ||
				strings.ContainsAny(e.What, "\n\x1b") || !strings.HasPrefix(e.What, "plugin pl: because [2J of xxx") {
				t.Fatalf("%+v", e)
			}
			if n := s.Stats().Sends; n != 1 {
				t.Errorf("%d sends: gRPC repeated one", n)
			}
			if r, err := c.Send(t.Context(), m); err != nil || r.ProviderID != "b1" || len(s.Messages("")) != 1 {
				t.Errorf("%+v %v, %+v", r, err, s.Messages(""))
			}
		})
	}
}

// A plugin that is away is known to have got nothing; one that dies under a call, or does not answer,
// is not.
func TestAway(t *testing.T) {
	s := start(t, nil)
	s.Say(plugintest.Direct("1", "hello"))
	c := open(t, s)
	m := channel.Message{Key: "k", Text: "hi", ReplyContext: place("1")}
	s.Stop()
	_, err := c.Send(t.Context(), m)
	if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || e.InDoubt || !e.BeforeSend {
		t.Errorf("%+v", e)
	}
	if l := c.(channel.Limiter).Limit(); l.Max != 0 {
		t.Errorf("%+v", l)
	}
	if err := s.Serve(); err != nil {
		t.Fatal(err)
	}
	s.Fail(plugintest.Fault{Method: "Send", Hang: true, Times: 2})
	done := make(chan error, 1)
	go func() { _, err := c.Send(t.Context(), m); done <- err }()
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Sends == 1 }); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if e := channel.AsError(<-done); e == nil || e.Class != channel.Unavailable || !e.InDoubt {
		t.Errorf("%+v", e)
	}
	if err := s.Serve(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := c.Send(ctx, m); done <- err }()
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Sends == 2 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if e := channel.AsError(<-done); e == nil || e.Class != channel.Interrupted || !e.InDoubt {
		t.Errorf("%+v", e)
	}
}

// A text that was cut before the limit of the plugin was known is cut again, and none is refused for
// that.
func TestLimitBecomesKnown(t *testing.T) {
	s := start(t, nil)
	s.Say(plugintest.Direct("1", "hello"))
	c := open(t, s)
	m := channel.Message{Key: "k", Text: strings.Repeat("\U0001F600", 251), ReplyContext: place("1")}
	_, err := c.Send(t.Context(), m)
	if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || e.InDoubt {
		t.Errorf("%+v", e)
	}
	if l := c.(channel.Limiter).Limit(); l.Max != 500 || l.Units('x') != 1 || l.Units('\U0001F600') != 2 {
		t.Errorf("%+v", l)
	}
	_, err = c.Send(t.Context(), m)
	if e := channel.AsError(err); e == nil || e.Class != channel.Rejected || s.Stats().Sends != 0 {
		t.Errorf("%+v", e)
	}
}

// What a socket of something else answers is no plugin.
func TestOtherSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-served })
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = c.Close()
		}
	}()
	r, err := plugin.Type.Receive("pl", channel.Definition{Plugin: "unix://" + path}, channel.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if e := channel.AsError(r.Receive(t.Context(), channeltest.NewIntake())); e == nil || e.Class != channel.Unavailable || strings.Contains(e.What, "400") {
		t.Errorf("%+v", e)
	}
}

// S4-68: messages of the account are changed, removed and marked, and the direct conversation with a
// person is found.
func TestMessages(t *testing.T) {
	s := start(t, nil)
	s.Say(plugintest.Direct("1207", "hello"))
	c := open(t, s)
	m := channel.Message{
		Key: "k", Text: "with buttons", ReplyContext: place("1207"), Part: 2, Attempt: 3, MaybeDuplicate: true,
		Buttons: []channel.Button{{Text: "Yes\xff", Command: "/yes"}},
	}
	r, err := c.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Messages("dm-1207")[0]
	if got.ID != r.ProviderID || got.Key != "k" || got.Part != 2 || !got.MaybeDuplicate || len(got.Buttons) != 1 || got.Buttons[0].GetText() != "Yes\uFFFD" {
		t.Errorf("%+v", got)
	}
	m.Text = "changed"
	if err := c.(channel.Editor).Edit(t.Context(), r.ProviderID, m); err != nil {
		t.Error(err)
	}
	if err := c.(channel.Reactor).React(t.Context(), r.ProviderID, "\U0001F44D", place("1207")); err != nil {
		t.Error(err)
	}
	if got := s.Messages("dm-1207")[0]; got.Text != "changed" || got.Mark != "\U0001F44D" {
		t.Errorf("%+v", got)
	}
	for what, err := range map[string]error{
		"edit of another": c.(channel.Editor).Edit(t.Context(), "b99", m),
		"edit of nothing": c.(channel.Editor).Edit(t.Context(), "", m),
		"mark too long":   c.(channel.Reactor).React(t.Context(), r.ProviderID, strings.Repeat("x", 65), place("1207")),
		"text too long":   c.(channel.Editor).Edit(t.Context(), r.ProviderID, channel.Message{Text: strings.Repeat("x", 501), ReplyContext: place("1207")}),
		"unknown session": c.(channel.Reactor).React(t.Context(), r.ProviderID, "x", place("1")),
		"nowhere":         c.(channel.Editor).Delete(t.Context(), r.ProviderID, nil),
		"unknown person":  errOf(c.(channel.Finder).Find(t.Context(), "1")),
		"no person":       errOf(c.(channel.Finder).Find(t.Context(), "")),
	} {
		if e := channel.AsError(err); e == nil || e.Class != channel.Rejected || e.InDoubt {
			t.Errorf("%s: %+v", what, e)
		}
	}
	if err := c.(channel.Editor).Delete(t.Context(), r.ProviderID, place("1207")); err != nil || len(s.Messages("")) != 0 {
		t.Error(err, s.Messages(""))
	}
	if id, err := c.(channel.Finder).Find(t.Context(), "1207"); id != "dm-1207" || err != nil {
		t.Error(id, err)
	}
	if again, err := c.(channel.Typer).Typing(t.Context(), place("1207")); again != 2*time.Second || err != nil || s.Stats().Typing != 1 {
		t.Error(again, err)
	}
	if c.Name() != "pl" || channel.Destination(c, m) != "dm-1207" || c.Guarantee() != channel.Keyed {
		t.Error(c.Name(), channel.Destination(c, m), c.Guarantee())
	}
}

func errOf(_ string, err error) error { return err }
