package command

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/theclaw/agents/internal/pause"
)

// ErrEnough ends Follow: as much was shown as was wanted.
var ErrEnough = errors.New("as many as were asked for")

// Follow calls stream, which shows what a service sends until its stream breaks and reports
// whether anything came, until the user interrupts it or stream returns ErrEnough, which is its
// normal end. It calls stream again when the service was away, for as long as Patience.
func Follow(ctx context.Context, stream func(context.Context) (answered bool, err error)) error {
	away := time.Now() // since when the service is away
	for {
		begun := time.Now()
		answered, err := stream(ctx)
		if answered || time.Since(begun) > time.Second {
			away = time.Now()
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrEnough):
			return nil
		case !errors.Is(err, io.EOF) && !Unavailable(err), time.Since(away) > Patience:
			return err
		}
		if pause.For(ctx, 200*time.Millisecond) != nil {
			return nil
		}
	}
}
