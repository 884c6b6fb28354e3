//go:build proof

package upgrade_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { program.Main(m) }

// figures are what the proof counts; all in the last row must be zero.
type figures struct {
	mu                                       sync.Mutex
	fixtures, messages, replied, merged, old int
	labels                                   map[string]bool
	lost, dup, violations                    int
}

// TestUpgrade opens fixtures with the present build, lets it finish what was begun, and
// looks for each message: N labels chosen by SEED, of each build and store.
func TestUpgrade(t *testing.T) {
	paths, err := filepath.Glob(fixture("*", "*", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	seed, chance := drill.Seed(t)
	labels := map[string]bool{}
	for _, p := range paths {
		labels[filepath.Base(p)] = true
	}
	chosen := []string{}
	for l := range labels {
		chosen = append(chosen, l)
	}
	slices.Sort(chosen)
	chance.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:min(drill.Size(t, "N", 2), len(chosen))]
	f := &figures{labels: map[string]bool{}}
	t.Run("fixtures", func(t *testing.T) {
		for _, store := range []string{"home", "dump"} {
			t.Run(store, func(t *testing.T) {
				var db *pgtest.Cluster
				if store == "dump" {
					db = pgtest.Start(t, "fsync = off")
				}
				t.Run("labels", func(t *testing.T) { // ends when those below have
					for _, path := range paths {
						if slices.Contains(chosen, filepath.Base(path)) && filepath.Base(filepath.Dir(path)) == store {
							// The name becomes that of a directory with sockets: it is short, and no
							// two builds have the same.
							build := filepath.Base(filepath.Dir(filepath.Dir(path)))
							t.Run(strings.TrimSuffix(filepath.Base(path), ".tar.gz")+"-"+build, func(t *testing.T) {
								t.Parallel()
								f.open(t, path, db)
							})
						}
					}
				})
			})
		}
	})
	drill.Line("upgrade fixtures=%d labels=%d/%d messages=%d replied=%d merged=%d old=%d lost=%d dup=%d violations=%d seed=%d",
		f.fixtures, len(f.labels), len(labels), f.messages, f.replied, f.merged, f.old, f.lost, f.dup, f.violations, seed)
}

// open takes one fixture over.
func (f *figures) open(t *testing.T, path string, db *pgtest.Cluster) {
	site := world.NewSite(t, program.Agentd(t))
	r, dump := unpack(t, path, site.Home)
	sink := world.NewSink(t)
	args := []string{"all", "--lease-ttl", "3s"}
	o := invariant.Options{Drained: true, History: &invariant.History{}}
	if db != nil {
		dsn := db.Database(t)
		restore(t, dsn, dump, r.Sink, sink.URL)
		args, o.DSN, o.Live = append(args, "--dsn", dsn), dsn, true
	} else {
		readdress(t, site.Home, r.Sink, sink.URL)
	}
	p := site.Start(t, args...)
	site.Serving(t, p, "registry", "runner", "deliverer")
	accepted := map[string]int64{}
	for i := range r.Messages { // who had no answer repeats the push, and who had one may too
		m := &r.Messages[i]
		id, err := site.Push(t.Context(), agent, world.Peer(m.Peer), m.text(), m.Key)
		check(t, err)
		if m.ID != 0 && m.ID != id {
			f.bad(t, &f.lost, "%s was accepted as %d, and is %d now", m.Key, m.ID, id)
		}
		m.ID, accepted[m.Key] = id, id
		o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: agent, Key: m.Key, IDs: []int64{id}})
	}
	settle(t, site, r.Messages)
	f.account(t, site, r)
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Errorf("exit %d: %s", code, p.Log())
	}
	o.Runs = keys(append(r.Ran, ran(t, site.Home)...))
	o.Sink = append(r.Arrivals, arrivals(sink)...)
	found, stats, err := invariant.Check(t.Context(), layout.At(site.Home), o)
	if err != nil || stats.Databases < 4 || stats.Turns < len(r.Messages) {
		t.Fatal(stats, err)
	}
	for _, v := range found {
		if v.Severity == invariant.Violation {
			f.bad(t, &f.violations, "%s", v)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fixtures++
	f.labels[r.Label] = true
}

func (f *figures) bad(t testing.TB, count *int, format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	*count++
}

// account looks for each message: one inbox event, one fate, and one reply event where
// the fate is replied.
func (f *figures) account(t *testing.T, site *world.Site, r record) {
	if n := len(site.Events(t, agent, "inbox", "")); n != len(r.Messages) {
		f.bad(t, &f.dup, "%d inbox events of %d messages", n, len(r.Messages))
	}
	turns, replies := map[string]*registryv1.Turn{}, map[string][]int64{}
	replied, merged, old := 0, 0, 0
	for _, m := range r.Messages {
		turn := site.Await(t, agent, m.ID)
		turns[turn.GetKey()] = turn
		if id := turn.GetReplyEventId(); id != 0 {
			replies[turn.GetThreadId()] = append(replies[turn.GetThreadId()], id)
		}
	}
	for _, m := range r.Messages {
		turn := site.Await(t, agent, m.ID)
		led := slices.ContainsFunc(turn.GetSteps(), func(s *registryv1.Step) bool { return s.GetKind() == registryv1.StepKind_STEP_KIND_STEER })
		switch fate := turn.GetFate(); fate {
		case registryv1.Fate_FATE_REPLIED:
			if replied++; turn.GetReplyEventId() == 0 || m.Kind == "fail" && !led {
				f.bad(t, &f.violations, "%s (%s): %v", m.Key, m.Kind, turn)
			}
		case registryv1.Fate_FATE_MERGED:
			merged++
			if leader := turns[turn.GetLeader()]; leader.GetFate() != registryv1.Fate_FATE_REPLIED && leader.GetFate() != registryv1.Fate_FATE_DEAD {
				f.bad(t, &f.lost, "%s was merged into %v", m.Key, leader)
			}
		default:
			if fate != registryv1.Fate_FATE_DEAD || m.Kind != "fail" && !led {
				f.bad(t, &f.lost, "%s (%s): %v", m.Key, m.Kind, turn)
			}
		}
		d := turn.GetDelivery()
		late := time.Since(time.Unix(r.Seconds, 0)) > 720*time.Hour-time.Minute && strings.Contains(d.GetError(), "not delivered within")
		switch {
		case turn.GetReplyEventId() == 0, d.GetState() == registryv1.DeliveryState_DELIVERY_STATE_SENT, m.Kind == "refuse" || led || merged > 0:
		case late: // no later than the greatest deliver.max_age, which the fixture has
			old++
		default:
			f.bad(t, &f.lost, "the reply to %s: %v", m.Key, d)
		}
	}
	for thread, want := range replies {
		var got []int64
		for _, e := range site.Events(t, agent, thread, "type = 'message' AND source = 'self'") {
			if world.IsApology(e) {
				continue // for one that is dead
			}
			got = append(got, e.GetId())
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			f.bad(t, &f.dup, "%s has the replies %v of turns with %v", thread, got, want)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages += len(r.Messages)
	f.replied += replied
	f.merged += merged
	f.old += old
}

// keys are the idempotency keys of tools that ran: a line that stands in two copies of a
// working directory was written once.
func keys(lines []string) (out []string) {
	slices.Sort(lines)
	for _, l := range slices.Compact(lines) {
		if key, _, ok := strings.Cut(l, " "); ok {
			out = append(out, key)
		}
	}
	return out
}

// readdress gives the agent of a home another receiver.
func readdress(t *testing.T, home, from, to string) {
	t.Helper()
	path := filepath.Join(home, "agents", agent, "config.yaml")
	b, err := os.ReadFile(path)
	check(t, err)
	if !strings.Contains(string(b), from) {
		t.Fatalf("%s does not name %s", path, from)
	}
	check(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(b), from, to)), 0o600))
}

// restore fills a database with a dump whose agent gets another receiver.
func restore(t *testing.T, dsn, dump, from, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	check(t, err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, dump).ReadAll()
	check(t, err)
	tag, err := conn.Exec(ctx, "UPDATE public.agent_file SET content = convert_to(replace(convert_from(content, 'UTF8'), $1, $2), 'UTF8') WHERE name = 'config.yaml'", from, to)
	check(t, err)
	if tag.RowsAffected() != 1 {
		t.Fatalf("settings of %d agents", tag.RowsAffected())
	}
}
