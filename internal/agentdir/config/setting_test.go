package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// Each scalar and each list of words of a Config is in the table, once; another list has
// settings of its own. The lists of the home have the keys of those of the agent.
func TestTableIsComplete(t *testing.T) {
	c := Default()
	fieldOf := map[any]string{}
	for _, f := range Fields() {
		at := f.Ref(&c)
		if other := fieldOf[at]; other != "" {
			t.Errorf("%s and %s are one value", f.Key, other)
		}
		fieldOf[at] = f.Key
	}
	found := 0
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch kind := v.Kind(); {
		case path == ".HomeTools":
			return
		case kind == reflect.Struct && v.Type() != reflect.TypeFor[Network]() && v.Type() != reflect.TypeFor[Delay]() && v.Type() != reflect.TypeFor[Transcribe]():
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Anonymous {
					walk(v.Field(i), path)
				} else {
					walk(v.Field(i), path+"."+f.Name)
				}
			}
		case (kind == reflect.Slice || kind == reflect.Map) && v.Type() != reflect.TypeFor[[]string]() && v.Type() != reflect.TypeFor[Variables]():
			key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(path, ".")), "byprovider", "by_provider")
			of := Explain(key)
			if len(of) == 0 {
				t.Errorf("%s has no setting", key)
			}
			for i := range v.Type().Elem().NumField() {
				name := plain(v.Type().Elem().Field(i).Name)
				if !slices.ContainsFunc(of, func(s Setting) bool { return plain(s.Key[strings.LastIndexByte(s.Key, '.')+1:]) == name }) {
					t.Errorf("%s: the attribute %s has no setting", key, name)
				}
			}
		default:
			if fieldOf[v.Addr().Interface()] == "" {
				t.Errorf("%s is in no field of the table", path)
			}
			found++
		}
	}
	walk(reflect.ValueOf(&c).Elem(), "")
	if found != len(Fields()) {
		t.Errorf("a Config has %d scalars, the table %d fields", found, len(Fields()))
	}
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// Each setting says all that a person needs, and an example that is valid and not the default.
func TestSettingsAreDescribed(t *testing.T) {
	types := []string{TypeText, TypeNumber, TypeDuration, TypeBoolean, TypeChoice, TypeList, TypeMap}
	effects := []Effect{EffectNow, EffectMessage, EffectIdle, EffectRestart, EffectNever}
	seen := map[string]bool{}
	for _, s := range Settings() {
		if seen[s.Key] {
			t.Errorf("%s is there twice", s.Key)
		}
		seen[s.Key] = true
		if !strings.HasSuffix(s.Meaning, ".") || strings.Contains(s.Meaning, "\n") {
			t.Errorf("%s: the meaning is no sentence: %q", s.Key, s.Meaning)
		}
		if !slices.Contains(types, s.Type) || !slices.Contains(effects, s.Effect) || !s.Agent && !s.Home {
			t.Errorf("%s: type %q, effect %q, in config.yaml %v, in theclaw.yaml %v", s.Key, s.Type, s.Effect, s.Agent, s.Home)
		}
		if s.Type == TypeNumber && s.Unit == "" || (s.Type == TypeNumber || s.Type == TypeDuration) && s.Limits == "" {
			t.Errorf("%s: unit %q, limits %q", s.Key, s.Unit, s.Limits)
		}
		if (s.Type == TypeChoice || s.Type == TypeBoolean) != (s.Values != nil) || s.Values != nil && !slices.Contains(s.Values, s.Example) {
			t.Errorf("%s: a %s with the values %q and the example %q", s.Key, s.Type, s.Values, s.Example)
		}
		if s.Effect != EffectNever && (s.Example == "" || s.Example == s.Default) {
			t.Errorf("%s: example %q, default %q", s.Key, s.Example, s.Default)
		}
		f := Lookup(s.Key)
		if f == nil || s.Example == "" {
			continue
		}
		c := Default()
		if problem := f.Parse(&c, s.Example); problem != "" {
			t.Errorf("%s: the example %q: %s", s.Key, s.Example, problem)
		}
		if c = Default(); f.Show(&c) != s.Default {
			t.Errorf("%s: default %q, a Config has %q", s.Key, s.Default, f.Show(&c))
		}
	}
	for _, f := range Fields() {
		if !seen[f.Key] {
			t.Errorf("%s is no setting", f.Key)
		}
	}
}

// The bounds are in, and what is next to them is not.
func TestLimits(t *testing.T) {
	bounded := 0
	for _, f := range Fields() {
		c := Default()
		valid := func(n int) bool {
			switch ref := f.Ref(&c).(type) {
			case *int:
				*ref = n
			case *time.Duration:
				*ref = time.Duration(n)
			default:
				t.Fatalf("%s has bounds and is no number", f.Key)
			}
			return f.Check(&c) == ""
		}
		switch r := f.Rule; {
		case r.High > 0:
			bounded++
			for n, want := range map[int]bool{r.Low: true, r.High: true, r.Low - 1: false, r.High + 1: false, -1: false} {
				if want = want || n == 0 && r.Zero; valid(n) != want {
					t.Errorf("%s: %d is valid: %v, want %v", f.Key, n, !want, want)
				}
			}
			if valid(0) != (r.Zero || r.Low <= 0) {
				t.Errorf("%s: 0 is valid: %v", f.Key, !r.Zero)
			}
		case r.Words != nil:
			bounded++
			for _, w := range r.Words {
				if problem := f.Parse(&c, w); problem != "" {
					t.Errorf("%s: %s: %s", f.Key, w, problem)
				}
			}
			if f.Parse(&c, r.Words[0]+"x") == "" {
				t.Errorf("%s takes %sx", f.Key, r.Words[0])
			}
		default:
			if _, ok := f.Ref(&c).(*int); ok {
				t.Errorf("%s has no bounds", f.Key)
			}
		}
	}
	if bounded < 25 {
		t.Errorf("only %d settings have limits", bounded)
	}
}

func TestTextsAreBounded(t *testing.T) {
	for key, values := range map[string][2]string{
		"agent_id":       {strings.Repeat("a", 64), strings.Repeat("a", 65)},
		"pai.provider":   {strings.Repeat("a", 128), strings.Repeat("a", 129)},
		"pai.model":      {strings.Repeat("a", 128), strings.Repeat("a", 129)},
		"inbox.path":     {strings.Repeat("a", 1024), strings.Repeat("a", 1025)},
		"workdir.shared": {"/" + strings.Repeat("a", 1023), "/" + strings.Repeat("a", 1024)},
		"workdir.ignore": {strings.Repeat("a", 1024), strings.Repeat("a", 1025)},
	} {
		c := Default()
		if problem := Lookup(key).Parse(&c, values[0]); problem != "" {
			t.Errorf("%s: %d bytes: %s", key, len(values[0]), problem)
		}
		if Lookup(key).Parse(&c, values[1]) == "" {
			t.Errorf("%s takes %d bytes", key, len(values[1]))
		}
	}
}

func TestExplain(t *testing.T) {
	for key, want := range map[string]string{
		"run.concurrency":                  "run.concurrency",
		"sandbox.docker.prune":             "sandbox.docker.prune.idle sandbox.docker.prune.max_age",
		"defaults.run.timeout":             "run.timeout",
		"channels.hook.url":                "channels.NAME.url channels.ACCOUNT.url",
		"channels.hook":                    "channels.NAME channels.NAME.type channels.NAME.url channels.NAME.secret channels.NAME.allow_private channels.ACCOUNT channels.ACCOUNT.type channels.ACCOUNT.default channels.ACCOUNT.enabled channels.ACCOUNT.dm channels.ACCOUNT.allow_from channels.ACCOUNT.bots channels.ACCOUNT.groups channels.ACCOUNT.tools channels.ACCOUNT.url channels.ACCOUNT.allow_private channels.ACCOUNT.secret channels.ACCOUNT.token channels.ACCOUNT.app_token channels.ACCOUNT.api channels.ACCOUNT.plugin channels.ACCOUNT.max_chars channels.ACCOUNT.rate channels.ACCOUNT.media_max_mib channels.ACCOUNT.reply_to channels.ACCOUNT.catchup channels.ACCOUNT.dm_history_limit channels.ACCOUNT.dms",
		"channels":                         "channels.NAME channels.NAME.type channels.NAME.url channels.NAME.secret channels.NAME.allow_private channels.ACCOUNT channels.ACCOUNT.type channels.ACCOUNT.default channels.ACCOUNT.enabled channels.ACCOUNT.dm channels.ACCOUNT.allow_from channels.ACCOUNT.bots channels.ACCOUNT.groups channels.ACCOUNT.tools channels.ACCOUNT.url channels.ACCOUNT.allow_private channels.ACCOUNT.secret channels.ACCOUNT.token channels.ACCOUNT.app_token channels.ACCOUNT.api channels.ACCOUNT.plugin channels.ACCOUNT.max_chars channels.ACCOUNT.rate channels.ACCOUNT.media_max_mib channels.ACCOUNT.reply_to channels.ACCOUNT.catchup channels.ACCOUNT.dm_history_limit channels.ACCOUNT.dms",
		"outbound":                         "outbound outbound[].thread_pattern outbound[].via",
		"outbound[0].via":                  "outbound[].via",
		"storage":                          "storage.engine storage.dsns",
		"defaults":                         "defaults",
		"session":                          "session.dm_scope session.main_key session.reset.mode session.reset.at session.reset.idle",
		"tools.by_provider.openai/gpt-4.1": "tools.by_provider.PROVIDER tools.by_provider.PROVIDER.profile tools.by_provider.PROVIDER.allow tools.by_provider.PROVIDER.also_allow tools.by_provider.PROVIDER.deny",
		"tools.by_provider.openai.deny":    "tools.by_provider.PROVIDER.deny",
		"session.reset":                    "session.reset.mode session.reset.at session.reset.idle",
		"agents.defaults.run.timeout":      "run.timeout",
		"agents.list[1].id":                "agents.list[].id",
		"channels.tg.dm":                   "channels.ACCOUNT.dm",
		"bindings":                         "bindings",
		"run.concurency":                   "",
		"run.":                             "",
		"channels.Hook":                    "",
		"channels.hook.colour":             "",
		"":                                 "",
		"defaults.storage.engine":          "",
		"defaults.kind":                    "",
		"inbox_paths":                      "inbox_paths",
		"outbound[].thread_pattern":        "outbound[].thread_pattern",
	} {
		var got []string
		for _, s := range Explain(key) {
			got = append(got, s.Key)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	for key, want := range map[string]string{
		"run.concurency":        "run.concurrency",
		"concurrency":           "run.concurrency",
		"compact.at_percent":    "compaction.at_percent",
		"model":                 "pai.model",
		"timeout":               "run.timeout",
		"max_attempts":          "", // retry and deliver
		"sandbox.netwrok":       "sandbox.network",
		"kindd":                 "kind",
		"colour":                "",
		"":                      "",
		"defaults.run.timeout":  "run.timeout",
		strings.Repeat("a", 80): "",
	} {
		if got := Nearest(key, Keys()); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// What a registry of another version shows changes nothing else.
func TestFromValues(t *testing.T) {
	want := Default()
	want.Run.Concurrency, want.Sandbox.Mode = 8, "stricter"
	got := FromValues(map[string]string{"run.concurrency": "8", "sandbox.mode": "stricter", "run.timeout": "soon", "no.such": "1", "outbound": "[]"})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// When a change is in force follows from who reads the setting: what a turn is given when it
// begins is in force with the next message. Of the others this says who reads them.
func TestEffects(t *testing.T) {
	others := map[string]Effect{
		"agent_id":               EffectNever,
		"kind":                   EffectMessage, // OtherAgents and CreatesAgents of a turn that begins
		"inbox.path":             EffectRestart, // where an engine has opened the inbox it stays
		"inbox.external":         EffectNow,     // each push, and each message before its turn
		"flavor":                 EffectMessage, // the defaults of the keys below
		"reply.usage_footer":     EffectMessage, // BeginTurn
		"session.dm_scope":       EffectMessage, // each message that is accepted
		"session.main_key":       EffectMessage,
		"session.reset.mode":     EffectMessage, // BeginTurn
		"session.reset.at":       EffectMessage,
		"session.reset.idle":     EffectMessage,
		"user_timezone":          EffectMessage,
		"skip_bootstrap":         EffectNow,     // the next creation or start of an agent
		"routing.default":        EffectMessage, // OpenBatch
		"routing.groups":         EffectMessage,
		"queue.mode":             EffectMessage, // OpenBatch
		"queue.debounce":         EffectMessage,
		"queue.cap":              EffectMessage,
		"queue.drop":             EffectMessage, // AcceptMessages, BeginTurn
		"run.concurrency":        EffectIdle,    // the first OpenBatch of a batch
		"on_error.notify_peer":   EffectMessage, // BeginTurn
		"approvals":              EffectMessage, // package layer sets tools.exec from it
		"tools.approval_timeout": EffectNow,     // RequestApproval
		"tools.approval_notify":  EffectNow,     // WatchApprovals
		"price.input_cents":      EffectNow,     // FinishTurn
		"human_delay":            EffectNow,     // BeginDelivery

		"tools.elevated.allow_from": EffectMessage, // BeginTurn, with the author of the message
		"price.output_cents":        EffectNow,
	}
	for _, f := range Fields() {
		if f.Example == "" {
			continue
		}
		before := Default()
		before.Sandbox.Network.Open = f.Key != "sandbox.network" // or the policy for commands is not asked
		if strings.HasPrefix(f.Key, "sandbox.docker.") {
			before.Sandbox.Driver, before.Sandbox.Network.Open = driverDocker, false
		}
		if strings.HasPrefix(f.Key, "reply.block.") {
			before.Reply.Blocks = blocksOn
		}
		before.Tools.Elevated.Enabled = f.Key != "tools.elevated.enabled"
		after := before
		if problem := f.Parse(&after, f.Example); problem != "" {
			t.Errorf("%s: %s", f.Key, problem)
		}
		want := others[f.Key]
		switch of, _, _ := strings.Cut(f.Key, "."); {
		case !proto.Equal(before.TurnConfig(Conversation{}, nil), after.TurnConfig(Conversation{}, nil)):
			if want != "" {
				t.Errorf("%s is given to a turn, and is among the others", f.Key)
			}
			want = EffectMessage
		case of == "quota", of == "deliver": // each push; each BeginDelivery and FinishDelivery
			want = EffectNow
		case strings.HasPrefix(f.Key, "sandbox.browser."): // nothing uses it yet
			want = EffectMessage
		}
		if f.Effect != want {
			t.Errorf("%s is in force %q, want %q", f.Key, f.Effect, want)
		}
	}
}
