package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// viewColumns are the people of the table who see something, where they write: Ann writes at two
// accounts, and she and Cid are members of a group.
var viewColumns = []string{"Ann", "Bob", "Ann at another account", "Cid in the group", "Ann in the group", "the owner", "a stranger"}

// viewNames is how the table calls those whose data they are.
var viewNames = map[string]string{
	"ann": "Ann", "bob": "Bob", "two": "Ann there", "group": "group", "owner": "owner", "cid": "Cid", "agent": "agent", "gus": "Gus", "eve": "stranger",
}

const (
	byPeer  = "default"
	oneDir  = "`sandbox.scope: session`, `sandbox.workspace_access: none`"
	oneMain = "`session.dm_scope: main`"
)

// views are what people see of the data of others, by the settings: for each column, whose data
// are found in everything that the person and the model that answers the person get. The rows with
// other settings are those that differ. docs/spec/security.md has the same table.
var views = []struct {
	what, settings string
	cells          []string
}{
	{"history", byPeer, []string{"ann", "bob", "two", "group", "group", "owner", ""}},
	{"memory", byPeer, []string{"agent ann", "agent bob", "agent two", "agent", "agent", "agent owner", ""}},
	{"digest", byPeer, []string{"ann", "bob", "two", "group", "group", "owner", ""}},
	{"workdir", byPeer, []string{everyone, everyone, everyone, everyone, everyone, everyone, ""}},
	{"media", byPeer, []string{everyone, everyone, everyone, everyone, everyone, everyone, ""}},
	{"status", byPeer, []string{"ann", "bob", "two", "group", "group", "owner", ""}},
	{"sessions", byPeer, []string{"", "", "", "", "", "", ""}},
	{"notices", byPeer, []string{"ann", "bob", "two", "group", "group", "gus owner", "eve"}},
	{"workdir", oneDir, []string{"ann", "bob", "two", "group", "group", "owner", ""}},
	{"media", oneDir, []string{"ann", "bob", "two", "group", "group", "owner", ""}},
	{"history", oneMain, []string{direct, direct, direct, "group", "group", direct, ""}},
	{"digest", oneMain, []string{direct, direct, direct, "group", "group", direct, ""}},
	{"status", oneMain, []string{direct, direct, direct, "group", "group", direct, ""}},
	{"notices", oneMain, []string{direct, direct, direct, "group", "group", "ann bob gus owner two", "eve"}},
}

const (
	direct   = "ann bob owner two"
	everyone = "ann bob group owner two"
)

// S4-35, S4-91, S2-18: what people see of each other. Each of them tries every view in the way that
// a person has: the prompt of the next turn, programs and tools in it, files of others by their path
// and by a reference to them, commands, and what is sent to the chat. Whose data they got is found by
// a word that only these data have.
func TestViewers(t *testing.T) {
	viewsSpecified(t)
	cells := 0
	for n, c := range []struct{ settings, config string }{
		{byPeer, "tools: {also_allow: [session_status]}"},
		{oneDir, "tools: {also_allow: [session_status]}\nsandbox: {scope: session, workspace_access: none}"},
		{oneMain, "tools: {also_allow: [session_status]}\nsession: {dm_scope: main}"},
	} {
		t.Run(strings.Trim(c.settings, "`"), func(t *testing.T) {
			v := openViews(t, n, c.config)
			v.fill()
			v.view()
			want := map[string][]string{}
			for _, row := range views {
				if row.settings == byPeer && want[row.what] == nil || row.settings == c.settings {
					want[row.what] = row.cells
				}
			}
			for column, name := range viewColumns {
				got := v.found(column)
				for what, row := range want {
					cells++
					if got[what] != row[column] {
						t.Errorf("%s of %q, found by %s: want %q", what, got[what], name, row[column])
					}
				}
			}
		})
	}
	t.Logf("figures: cells=%d", cells)
}

// viewsSpecified compares the table with that of the specification.
func viewsSpecified(t *testing.T) {
	t.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "| what | settings | %s |\n|%s\n", strings.Join(viewColumns, " | "), strings.Repeat("---|", len(viewColumns)+2))
	for _, row := range views {
		fmt.Fprintf(&table, "| %s | %s |", row.what, row.settings)
		for _, cell := range row.cells {
			var names []string
			for owner := range strings.FieldsSeq(cell) {
				names = append(names, viewNames[owner])
			}
			shown := cmp.Or(strings.Join(names, ", "), "-")
			switch cell {
			case direct:
				shown = "all direct"
			case everyone:
				shown = "all"
			}
			fmt.Fprintf(&table, " %s |", shown)
		}
		table.WriteString("\n")
	}
	page, err := os.ReadFile("../../docs/spec/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n\n"+table.String()+"\n") {
		t.Errorf("docs/spec/security.md does not have the table\n%s", table.String())
	}
}

// secret is the word that is only in the data of one owner for one view.
func secret(what, owner string) string { return "canary-" + what + "-" + owner }

var secretWord = regexp.MustCompile(`canary-([a-z]+)-([a-z]+)`)

// place is a person in a chat.
type place struct {
	name   string // in texts
	column int
	owner  string // whose data it has: its own, or those of its group
	api    *telegramtest.Server
	user   telegramtest.User
	chat   telegramtest.Chat
	key    string // of its session
	turns  int
}

// viewing is a home with people, and the model that answers them.
type viewing struct {
	*site
	t      *testing.T
	model  *viewModel
	places []*place // by column; without the stranger
	eve    telegramtest.User
	first  *telegramtest.Server // of the account tg
	code   string               // that the stranger got
	hashes []string             // of all media
	secret map[string]string    // further words that show data, by "WHAT OWNER"
}

// openViews starts the home. n makes its group another one: the rate of a group outlives a home.
func openViews(t *testing.T, n int, config string) *viewing {
	t.Helper()
	first := botAPI(t)
	second, err := telegramtest.Start(telegramtest.Config{Token: botToken(0), Username: "other_bot"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	v := &viewing{t: t, model: newViewModel(t), first: first, secret: map[string]string{}}
	person := func(id int64, name string) telegramtest.User {
		return telegramtest.User{ID: 7_100_000 + id, FirstName: name}
	}
	ann, bob, cid, boss := person(1, "Ann"), person(2, "Bob"), person(3, "Cid"), person(4, "Boss")
	v.eve = person(5, "Eve")
	gus := person(6, "Gus")
	group := telegramtest.Chat{ID: -1_007_700 - int64(n), Type: "supergroup", Title: "Group"}
	dm := func(account string, u telegramtest.User) string {
		if strings.Contains(config, "dm_scope: main") {
			return "agent:admin:main"
		}
		return fmt.Sprintf("agent:admin:telegram:%s:dm:%d", account, u.ID)
	}
	ofGroup := fmt.Sprintf("agent:admin:telegram:group:%d", group.ID)
	v.places = []*place{
		{name: "ann", owner: "ann", api: first, user: ann, chat: telegramtest.Private(ann), key: dm("tg", ann)},
		{name: "bob", owner: "bob", api: first, user: bob, chat: telegramtest.Private(bob), key: dm("tg", bob)},
		{name: "two", owner: "two", api: second, user: ann, chat: telegramtest.Private(ann), key: dm("second", ann)},
		{name: "cid", owner: "group", api: first, user: cid, chat: group, key: ofGroup},
		{name: "anningroup", owner: "group", api: first, user: ann, chat: group, key: ofGroup},
		{name: "owner", owner: "owner", api: first, user: boss, chat: telegramtest.Private(boss), key: dm("tg", boss)},
		{name: "gus", owner: "gus", api: first, user: gus, chat: telegramtest.Private(gus)},
	}
	for i, p := range v.places {
		p.column = i
	}
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "providers: {work: {base_url: \"" + v.model.url + "/v1\", models: [m1]}}\n"
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	from := fmt.Sprintf("dm: pairing, allow_from: ['%d', '%d', '%d', '%d'], groups: {allow: ['%d']}", ann.ID, bob.ID, boss.ID, gus.ID, group.ID)
	accounts := fmt.Sprintf("channels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, rate: 0, %s}\n  second: {type: telegram, token: \"env:B0\", api: %q, rate: 0, %s}\nowners: ['telegram:%d']\n",
		first.URL(), from, second.URL(), from, boss.ID)
	if err := os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte(accounts), 0o600); err != nil {
		t.Fatal(err)
	}
	v.site = open(t, world.Options{Home: home}, "")
	v.Create(t, "admin", config)
	v.Create(t, "host", "sandbox: {mode: \"off\"}\napprovals: ask") // programs on the host: they need an approval
	bindings := fmt.Sprintf("[{agent_id: host, match: {channel: telegram, account_id: tg, peer: {kind: dm, id: '%d'}}}]", gus.ID)
	if _, err := v.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"bindings"}, Value: bindings}); err != nil {
		t.Fatal(err)
	}
	v.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	v.state(t, "second", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	return v
}

// say makes a person write a text that starts a turn, and waits until the model has answered it.
// Each call is the name of a tool and its arguments.
func (v *viewing) say(p *place, text string, files []telegramtest.File, calls ...[2]string) {
	v.t.Helper()
	mark := p.next()
	v.write(p, mark+" "+text+lines(v.t, calls), files)
	v.model.await(v.t, mark)
}

// next is the mark of the next message that starts a turn.
func (p *place) next() string {
	p.turns++
	return fmt.Sprintf("[[%s.%d]]", p.name, p.turns)
}

// write makes a person write a text; in a group it mentions the bot.
func (v *viewing) write(p *place, text string, files []telegramtest.File) {
	if p.chat.Type != "private" {
		text = "@demo_bot " + text
	}
	p.api.Say(telegramtest.Message{Chat: p.chat, From: &p.user, Text: text, Files: files})
}

func lines(t *testing.T, calls [][2]string) string {
	t.Helper()
	out := ""
	for _, c := range calls {
		if !json.Valid([]byte(c[1])) {
			t.Fatalf("%s", c[1])
		}
		out += "\ncall: " + c[0] + " " + c[1]
	}
	return out
}

func program(command string) [2]string {
	b, _ := json.Marshal(map[string]string{"command": command, "comment": "as asked"}) // texts: it cannot fail
	return [2]string{"bash_exec", string(b)}
}

// fill gives each conversation, and each person, data for every view.
func (v *viewing) fill() {
	t := v.t
	texts := map[string]string{"memory/agent.md": secret("memory", "agent")}
	remember := func(name, word string) { texts[name] += word + "\n" }
	titles := map[string]string{}
	for _, p := range v.places {
		if p.name == "gus" || p.name == "anningroup" {
			continue
		}
		content := []byte(secret("media", p.owner) + "\n")
		sum := sha256.Sum256(content)
		v.hashes = append(v.hashes, hex.EncodeToString(sum[:]))
		// What no message has, the program puts together.
		v.say(p, secret("history", p.owner), []telegramtest.File{{Kind: "document", Name: p.owner + ".txt", MIME: "text/plain", Content: content}},
			program(fmt.Sprintf("printf 'canary-%%s-%%s\\n' workdir %s >note-%s.txt", p.owner, p.owner)))
		// A file that is too large is named in the chat alone, and to the model in that conversation.
		v.say(p, "", []telegramtest.File{{Kind: "video", Name: secret("notices", p.owner) + ".mp4", MIME: "video/mp4", Size: 30 << 20, Content: []byte("x")}})
		awaitText(t, p.api, p.chat.ID, 0, secret("notices", p.owner))
		k, err := sessionkey.Parse(p.key)
		if err != nil {
			t.Fatal(err)
		}
		account := "tg"
		if p.name == "two" {
			account = "second"
		}
		person := cmp.Or(map[string]string{"cid": "cid"}[p.name], p.owner)
		remember("memory/"+route.MemoryUserFile(route.Tuple{ChannelType: "telegram", ChannelID: account, PeerID: fmt.Sprint(p.user.ID)}), secret("memory", person))
		remember("memory/"+route.MemoryThreadFile(k.Thread()), secret("digest", p.owner))
		titles[p.key] = secret("sessions", p.owner) // of a session that people share, the last one
		v.secret["status "+p.owner] = p.key
	}
	for name, text := range texts {
		if _, err := v.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "admin", Name: name, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	for key, title := range titles {
		if _, err := v.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{AgentId: "admin", Key: key, Title: &title}); err != nil {
			t.Fatal(err)
		}
	}
	// What the owner of the home sees by the list of sessions: each of them has its title.
	list, err := v.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	for key, title := range titles {
		if !strings.Contains(list.String(), key) || !strings.Contains(list.String(), title) {
			t.Errorf("the list of sessions has no %s: %v", key, list)
		}
	}
	// A command that waits for an approval, by a person of another agent.
	gus := v.places[6]
	v.write(gus, gus.next()+lines(t, [][2]string{program("printf " + secret("notices", "gus"))}), nil)
	boss := v.places[5]
	asked := awaitText(t, boss.api, boss.chat.ID, 0, secret("notices", "gus"))
	id := strings.Fields(asked.Text[strings.Index(asked.Text, "/deny"):])[1]
	if _, err := v.Approvals.ResolveApproval(t.Context(), &registryv1.ResolveApprovalRequest{ApprovalId: id}); err != nil {
		t.Fatal(err)
	}
	v.model.await(t, "[[gus.1]]")
	// A stranger, who gets a code.
	v.first.Say(telegramtest.Message{Chat: telegramtest.Private(v.eve), From: &v.eve, Text: "hello"})
	_, code, _ := strings.Cut(awaitReplies(t, v.first, v.eve.ID, 1)[0], "Code: ")
	v.code, _, _ = strings.Cut(code, " ")
	if len(v.code) != 8 {
		t.Fatalf("%q", replies(v.first, v.eve.ID))
	}
	v.secret["notices eve"] = v.code
}

// view lets each person try to see what there is.
func (v *viewing) view() {
	t := v.t
	var files, named []string
	for i, p := range []int{0, 1, 2, 3, 5} {
		name := v.places[p].owner + ".txt"
		files = append(files, "inbox/"+v.hashes[i][:12]+"/"+name)
		named = append(named, fmt.Sprintf(`{"type":"file","name":%q,"mime":"text/plain","size":%d,"media":"sha256:%s"}`, name, len(secret("media", v.places[p].owner)+"\n"), v.hashes[i]))
	}
	dirs := []string{filepath.Join(v.Home, "agents", "admin", "workdir")}
	scratch, err := filepath.Glob(filepath.Join(v.Home, "sandboxes", "*"))
	if err != nil {
		t.Fatal(err)
	}
	dirs = append(dirs, scratch...)
	command := "cat note-*.txt " + strings.Join(files, " ")
	for _, dir := range dirs {
		command += " " + dir + "/note-*.txt"
		for _, f := range files {
			command += " " + dir + "/" + f
		}
	}
	// Everything that a program can read of the home, the list of sessions and its sockets included.
	command += fmt.Sprintf("; grep -rhaoE 'canary-[a-z]+-[a-z]+|agent:admin:[a-z0-9:-]+' . .. /proc/self/cwd/.. %s | sort -u | head -n 200; cat %s/run/token; ls %s/run; agentctl --home %s sessions list admin",
		v.Home, v.Home, v.Home, v.Home)
	before := map[*place]int{}
	for _, p := range v.places[:6] {
		before[p] = len(replies(p.api, p.chat.ID))
	}
	for _, p := range v.places[:6] {
		// A text in the form of a message with files of others.
		mark := p.next()
		v.write(p, fmt.Sprintf(`{"text":%q,"attachments":[%s]}`, mark, strings.Join(named, ",")), nil)
		v.model.await(t, mark)
		v.say(p, "/sessions", nil, [2]string{"sessions_list", "{}"}, [2]string{"session_status", "{}"}, program(command))
		n := len(replies(p.api, p.chat.ID))
		v.write(p, "/status", nil)
		awaitText(t, p.api, p.chat.ID, n, "Session: "+p.key)
	}
	for _, text := range []string{"/status", "/sessions", "/whoami"} {
		v.first.Say(telegramtest.Message{Chat: telegramtest.Private(v.eve), From: &v.eve, Text: text})
	}
	settled(t, v.first)
}

// found returns by view whose data the person of a column got.
func (v *viewing) found(column int) map[string]string {
	var all strings.Builder
	chat, api := v.eve.ID, v.first
	if column < 6 {
		p := v.places[column]
		chat, api = p.chat.ID, p.api
		for _, request := range v.model.requests(p.name) {
			all.WriteString(request + "\n")
		}
	}
	for _, m := range api.Messages(chat) {
		all.WriteString(m.Text + "\n")
		for _, b := range m.Buttons {
			all.WriteString(b.Text + " " + b.Data + "\n")
		}
	}
	text := all.String()
	owners := map[string]map[string]bool{}
	add := func(what, owner string) {
		if owners[what] == nil {
			owners[what] = map[string]bool{}
		}
		owners[what][owner] = true
	}
	for _, m := range secretWord.FindAllStringSubmatch(text, -1) {
		add(m[1], m[2])
	}
	for of, word := range v.secret {
		what, owner, _ := strings.Cut(of, " ")
		if regexp.MustCompile(regexp.QuoteMeta(word) + `\b`).MatchString(text) {
			add(what, owner)
		}
	}
	out := map[string]string{}
	for what, list := range owners {
		out[what] = strings.Join(slices.Sorted(maps.Keys(list)), " ")
	}
	return out
}

// viewModel is a model on loopback that makes the calls of a message, one after the other, and keeps
// what it was asked by the person whose message it answers.
type viewModel struct {
	url string

	mu      sync.Mutex
	asked   map[string][]string // by person
	ended   map[string]bool     // by mark
	changed chan struct{}       // closed and replaced at each end
}

var (
	viewMark = regexp.MustCompile(`\[\[([a-z]+)\.[0-9]+\]\]`)
	viewCall = regexp.MustCompile(`(?m)^call: (\w+) (.+)$`)
)

func newViewModel(t *testing.T) *viewModel {
	t.Helper()
	m := &viewModel{asked: map[string][]string{}, ended: map[string]bool{}, changed: make(chan struct{})}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

func (m *viewModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has gone
	}
	var request struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// The calls of the last message, and how many of them have a result.
	var text string
	results := 0
	for i := len(request.Messages) - 1; i >= 0; i-- {
		if request.Messages[i].Role == "tool" {
			results++
		}
		if request.Messages[i].Role == "user" {
			if json.Unmarshal(request.Messages[i].Content, &text) != nil {
				text = string(request.Messages[i].Content)
			}
			break
		}
	}
	marks := viewMark.FindAllStringSubmatchIndex(text, -1)
	if len(marks) == 0 {
		http.Error(w, "the message has no mark", http.StatusBadRequest)
		return
	}
	at := marks[len(marks)-1] // before it are messages that have no answer
	mark, person := text[at[0]:at[1]], text[at[2]:at[3]]
	calls := viewCall.FindAllStringSubmatch(text[at[1]:], -1)
	m.mu.Lock()
	m.asked[person] = append(m.asked[person], string(body))
	if results >= len(calls) {
		m.ended[mark] = true
		close(m.changed)
		m.changed = make(chan struct{})
	}
	m.mu.Unlock()
	delta, finish := `"content":"NO_REPLY"`, "stop"
	if results < len(calls) {
		c := calls[results]
		delta = fmt.Sprintf(`"tool_calls":[{"index":0,"id":"c%d","type":"function","function":{"name":%q,"arguments":%s}}]`, results, c[1], quoted(c[2]))
		finish = "tool_calls"
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",%s},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n", delta, finish)
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a text: it cannot fail
	return string(b)
}

// await waits until the message with a mark has its answer.
func (m *viewModel) await(t *testing.T, mark string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		m.mu.Lock()
		ended, changed := m.ended[mark], m.changed
		m.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the model was not asked about %s: %v", mark, slices.Collect(maps.Keys(m.requestsByPerson())))
		}
	}
}

func (m *viewModel) requests(person string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked[person])
}

func (m *viewModel) requestsByPerson() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.asked)
}
