package pool

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const (
	// patience is how long a start waits for a database: longer than one takes to start,
	// to recover from a crash or to be taken over by its standby, and short enough for
	// whoever wrote a wrong address and sees the start fail.
	patience = time.Minute
	// again is the pause between two tries.
	again = 250 * time.Millisecond
)

// Await is Open for a caller that may have been started before its database, or while one
// takes over from another: it tries again for a minute. absent, when set, is notified once
// of a database that is waited for. Errors also: REGISTRY_UNAVAILABLE.
func Await(ctx context.Context, url string, absent func(error)) (*pgxpool.Pool, error) {
	end := time.Now().Add(patience)
	for reported := false; ; reported = true {
		p, err := Open(ctx, url)
		if err == nil || absent == nil {
			return p, err
		}
		later := away(err)
		if _, refused := errors.AsType[*pgconn.ConnectError](err); !refused && !later {
			return p, err
		}
		if !later || time.Now().After(end) {
			return p, fault.Wrap(fault.New(codes.Unavailable, fault.RegistryUnavailable, err.Error(),
				"see that the database runs and that its URL in storage.dsns is right"), err)
		}
		if !reported {
			absent(err)
		}
		if ended := pause.For(ctx, again); ended != nil {
			return p, errors.Join(err, ended)
		}
	}
}

// away reports that a database could not be reached, or not yet: what else it says, as of a
// wrong password, it would say again.
func away(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return errors.Is(unit.Problem(err), store.ErrIO)
	}
	switch pg.Code {
	case "57P01", "57P02", "57P03", "53300": // it stops, crashed, starts; all connections are taken
		return true
	}
	return pg.Code[:2] == "08" // of the connection
}
