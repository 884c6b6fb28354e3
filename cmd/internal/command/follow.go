package command

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/pause"
)

// ErrEnough ends Follow: as much was shown as was wanted.
var ErrEnough = errors.New("as many as were asked for")

// Follow shows what a service sends over the stream that open returns, until the user interrupts it
// or show returns ErrEnough, which is its normal end. It opens the stream again when the service was
// away, for as long as Patience.
func Follow[R any](ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[R], error), show func(*R) error) error {
	away := time.Now() // since when the service is away
	for {
		begun := time.Now()
		answered, err := followOnce(ctx, open, show)
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

// followOnce shows until the stream breaks; answered reports whether anything came.
func followOnce[R any](ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[R], error), show func(*R) error) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := open(ctx)
	if err != nil {
		return false, err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		if err := show(r); err != nil {
			return true, err
		}
	}
}
