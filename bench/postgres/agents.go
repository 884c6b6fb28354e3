package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/table"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// figures are what is asked of a database with some number of agents.
type figures struct {
	start, page, whole, status time.Duration
	here, there, fromPush      time.Duration // push to claimed, p50
}

// few are so many agents.
const few = 100

// handOver measures the hand-over of work with few agents. It is asked for before the load,
// after it and at the end: on a machine that others use too, one moment says little.
func (b *bench) handOver(r *run) {
	if b.wants("dispatch") {
		b.handed = append(b.handed, b.among(r, few))
	}
}

// dispatch tells the medians of what was measured.
func (b *bench) dispatch() {
	if len(b.handed) == 0 {
		return
	}
	of := func(get func(figures) time.Duration) time.Duration {
		return median(len(b.handed), func(i int) time.Duration { return get(b.handed[i]) })
	}
	for _, d := range []struct {
		where string
		took  time.Duration
	}{
		{"the same", of(func(f figures) time.Duration { return f.here })},
		{"another", of(func(f figures) time.Duration { return f.there })},
	} {
		what := "dispatch: push acknowledged -> claimed at " + d.where + " registry, p50"
		b.table.AtMost(what, d.took, time.Millisecond)
		b.table.Within(what, d.took, 10, "F", b.f)
	}
	b.table.Figure("dispatch: push sent -> claimed at another registry, p50", table.Short(of(func(f figures) time.Duration { return f.fromPush })))
}

// agents measures it with few agents and with many: flat.
func (b *bench) agents(r *run) {
	few := b.among(r, few)
	n := pick(b, 100_000, 10_000)
	if b.many > 0 {
		n = b.many
	}
	many := b.among(r, n)
	of := fmt.Sprintf("%d agents: ", n)
	b.table.Flat(of+"registry start to SERVING", many.start, few.start, 1.5)
	b.table.Flat(of+"status of one, p50", many.status, few.status, 1.5)
	b.table.Flat(of+"list, a page of 100", many.page, few.page, 1.5)
	b.table.Flat(of+"list, all, for each 100", many.whole*100/time.Duration(n), few.whole, 1.5)
	b.table.Figure(of+"list, all", table.Short(many.whole))
	b.table.Flat(of+"push acknowledged -> claimed at the same registry, p50", many.here, few.here, 1.5)
	b.table.Flat(of+"push acknowledged -> claimed at another registry, p50", many.there, few.there, 1.5)
}

// among makes a database with n started agents that have nothing to do.
func (b *bench) among(r *run, n int) (f figures) {
	r.part(func(r *run) {
		b.say("%d agents", n)
		dsn := b.within(r, b.cluster)
		s := newSite(r, b.agentd, dsn)
		s.start("registry", 1)
		r.check(makeAgent(r.ctx, s.registry(0), "template-agent"))
		s.stop("registry")
		fill(r, dsn, n)
		for i := range 3 {
			s.stop("registry")
			if took := s.start("registry", 1); i == 0 || took < f.start {
				f.start = took
			}
		}
		s.start("registry", 1)
		f.list(r, s, n)
		rounds := min(pick(b, 150, 40), n/2-10) // claims makes ten more, each for another agent
		f.here, _ = b.claims(r, s, n, 0, rounds, 0)
		f.there, f.fromPush = b.claims(r, s, n, 1, rounds, n/2)
	})
	return f
}

// fill copies an agent n times.
func fill(r *run, dsn string, n int) {
	c, err := pgx.Connect(r.ctx, dsn)
	r.check(err)
	defer func() { _ = c.Close(r.ctx) }()
	for _, q := range []string{
		"INSERT INTO agent(agent_id) SELECT 'many-' || to_char(i, 'FM000000') FROM generate_series(0, $1::int - 1) i",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) SELECT 'many-' || to_char(i, 'FM000000'), 'inbox', md5(i::text), 'started' FROM generate_series(0, $1::int - 1) i",
		`INSERT INTO subscription(agent_id, thread_id, consumer, handler, filter)
			SELECT 'many-' || to_char(i, 'FM000000'), 'inbox', consumer, handler, filter FROM generate_series(0, $1::int - 1) i, subscription WHERE agent_id = 'template-agent' AND thread_id = 'inbox'`,
		`INSERT INTO agent_file(agent_id, name, content, version) SELECT id, name, content, encode(sha256(content), 'hex') FROM (
			SELECT 'many-' || to_char(i, 'FM000000') AS id, name, convert_to(replace(convert_from(content, 'UTF8'), 'template-agent', 'many-' || to_char(i, 'FM000000')), 'UTF8') AS content
			FROM generate_series(0, $1::int - 1) i, agent_file WHERE agent_id = 'template-agent') f`,
		`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
			SELECT 'many-' || to_char(i, 'FM000000'), k || '/many-' || to_char(i, 'FM000000'), 0, '', '', '', 0, clock_timestamp(), true
			FROM generate_series(0, $1::int - 1) i, unnest(ARRAY['agent', 'deliver']) k`,
	} {
		_, err := c.Exec(r.ctx, q, n)
		r.check(err)
	}
	_, err = c.Exec(r.ctx, "VACUUM ANALYZE")
	r.check(err)
}

func manyName(i int) string { return fmt.Sprintf("many-%06d", i) }

// list measures what people look at.
func (f *figures) list(r *run, s *site, n int) {
	agents := registryv1.NewAgentServiceClient(s.registry(0))
	page := func(size int32, token string) *registryv1.ListAgentsResponse {
		out, err := agents.ListAgents(r.ctx, &registryv1.ListAgentsRequest{PageSize: size, PageToken: token})
		r.check(err)
		return out
	}
	page(1, "")
	f.page = timed(20, func(int) { page(100, "") })
	f.status = timed(50, func(i int) {
		a, err := agents.GetAgent(r.ctx, &registryv1.GetAgentRequest{AgentId: manyName(i * n / 50)})
		r.check(err)
		if a.GetAgent().GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK {
			r.Fatalf("an agent is %v", a)
		}
	})
	whole := func() {
		seen := 0
		for token, more := "", true; more; more = token != "" {
			out := page(0, token)
			seen, token = seen+len(out.GetAgents()), out.GetNextPageToken()
		}
		if seen != n+1 {
			r.Fatalf("listed %d of %d agents", seen, n+1)
		}
	}
	f.whole = timed(3, func(int) { whole() })
}

// claims pushes to idle agents at the first registry while a runner waits for work at
// one of them, and answers the medians from the push's answer, and from its question.
func (b *bench) claims(r *run, s *site, n, at, rounds, from int) (acked, sent time.Duration) {
	push := registryv1.NewThreadServiceClient(s.registry(0))
	agents := registryv1.NewAgentServiceClient(s.registry(0))
	leases := registryv1.NewLeaseServiceClient(s.registry(at))
	var all, whole []time.Duration
	for i := range rounds + 10 {
		id := manyName(from + i*(n/2)/(rounds+10))
		type answer struct {
			due *registryv1.AcquireDueLeaseResponse
			at  time.Time
			err error
		}
		got := make(chan answer, 1)
		ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
		go func() {
			out, err := leases.AcquireDueLease(ctx, &registryv1.AcquireDueLeaseRequest{
				Kind: registryv1.LeaseKind_LEASE_KIND_RUN, Holder: "bench", RequestId: ulid.Make().String(), MaxNew: 1,
				Ttl: durationpb.New(time.Minute), Wait: durationpb.New(20 * time.Second),
			})
			got <- answer{out, time.Now(), err}
		}()
		time.Sleep(8 * time.Millisecond) // until it waits
		begun := time.Now()
		_, err := push.PushEvents(ctx, &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: id, ThreadId: "inbox"}, IdempotencyKey: fmt.Sprint("claim-", at),
			Events: []*registryv1.NewEvent{{Source: "external:bench:bench:dm:p:p", Type: "message", Content: `{"text":"hello"}`}},
		})
		r.check(err)
		told := time.Now()
		a := <-got
		cancel()
		r.check(a.err)
		if len(a.due.GetDue()) != 1 || a.due.GetDue()[0].GetAgentId() != id {
			r.Fatalf("pushed to %s, and %s after the answer to that there was claimed: %v", id, a.at.Sub(told), a.due)
		}
		if i >= 10 { // the first ones prepare statements
			all, whole = append(all, max(a.at.Sub(told), 0)), append(whole, a.at.Sub(begun))
		}
		_, err = agents.StopAgent(r.ctx, &registryv1.StopAgentRequest{AgentId: id}) // off the list
		r.check(err)
		l := a.due.GetDue()[0].GetLease()
		_, err = leases.ReleaseLease(r.ctx, &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
		r.check(err)
	}
	slices.Sort(all)
	slices.Sort(whole)
	return load.Percentile(all, .5), load.Percentile(whole, .5)
}

// timed is the median time of n calls.
func timed(n int, do func(i int)) time.Duration {
	return median(n, func(i int) time.Duration {
		begun := time.Now()
		do(i)
		return time.Since(begun)
	})
}

func median(n int, of func(i int) time.Duration) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = of(i)
	}
	slices.Sort(all)
	return load.Percentile(all, .5)
}
